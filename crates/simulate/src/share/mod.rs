//! Shares of resources: max-min fairness by progressive filling (Bertsekas and Gallager, Data
//! Networks, 6.5.2).
//!
//! Flows with the same path get the same rate, so they are kept together, as a *bundle*: its clock
//! counts the amount that each of its flows has received, and a flow ends when the clock reaches
//! the sum at its start and its size. So a flow that joins or ends costs only the logarithm of the
//! number of flows.
//!
//! Only resources that a change reaches are computed anew: see [`fair`].

mod fair;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Shares of a bundle's rate closer than this are the same.
const SAME: f64 = 1e-12;

/// Names a [`Bundle`].
pub(crate) type BundleId = u32;
/// Names something shared.
pub(crate) type ResourceId = u32;

/// Orders times and amounts, which are never negative nor NaN.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Amount(pub(crate) f64);

impl Eq for Amount {}

impl PartialOrd for Amount {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Amount {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

#[derive(Default)]
struct Resource {
    capacity: f64,
    /// Active bundles, and which of its uses that is.
    users: Vec<(BundleId, u32)>,
    seen: u64,
    /// Open in the computation of this number.
    open: u64,
    left: f64,
    load: f64,
    unfrozen: u32,
    /// The greatest rate of those of its users that are not computed anew.
    held: f64,
}

/// One resource on a bundle's path.
#[derive(Clone, Copy)]
struct Use {
    resource: ResourceId,
    /// The amount of the resource that a flow takes per unit of its rate. 0: none.
    weight: f64,
    /// Where it stands in the resource's list of users, while the bundle is active.
    position: u32,
}

/// Flows with the same path.
struct Bundle {
    uses: Vec<Use>,
    /// The most that one flow is given.
    rate_max: f64,
    rate: f64,
    /// The amount that each flow has received by the time `at`.
    clock: f64,
    at: f64,
    /// The ends of flows, by the clock, with the owners to notify.
    flows: BinaryHeap<Reverse<(Amount, u32)>>,
    /// Counts changes of when the next flow ends.
    version: u32,
    /// The number of flows on which the rates are based.
    counted: u32,
    seen: u64,
    /// The rate that was computed and is not in force yet.
    share: Option<f64>,
    dirty: bool,
}

/// When the next flow of a bundle ends, as long as the version is the bundle's.
pub(crate) struct Ending {
    pub(crate) time: f64,
    pub(crate) bundle: BundleId,
    pub(crate) version: u32,
}

/// Everything that is shared.
#[derive(Default)]
pub(crate) struct Shares {
    resources: Vec<Resource>,
    bundles: Vec<Bundle>,
    dirty: Vec<BundleId>,
    /// Resources that a bundle has stopped using, or that have changed.
    freed: Vec<ResourceId>,
    epoch: u64,
    component: Vec<BundleId>,
    touched: Vec<ResourceId>,
    opened: Vec<ResourceId>,
    bottlenecks: BinaryHeap<Reverse<(Amount, ResourceId)>>,
}

impl Shares {
    pub(crate) fn add_resource(&mut self, capacity: f64) -> ResourceId {
        self.resources.push(Resource {
            capacity,
            ..Resource::default()
        });
        self.resources.len() as ResourceId - 1
    }

    /// Changes the capacity of a resource.
    pub(crate) fn set_capacity(&mut self, id: ResourceId, capacity: f64) {
        self.resources[id as usize].capacity = capacity;
        self.freed.push(id);
    }

    /// How much of a resource is taken.
    pub(crate) fn used(&self, id: ResourceId) -> f64 {
        let users = self.resources[id as usize].users.iter();
        let of_user = |(user, place): &(BundleId, u32)| {
            let bundle = &self.bundles[*user as usize];
            bundle.uses[*place as usize].weight * f64::from(bundle.counted) * bundle.rate
        };
        users.map(of_user).sum()
    }

    /// A bundle without flows that uses these resources, each with a weight, and gives no flow more
    /// than `rate_max`.
    pub(crate) fn add_bundle(&mut self, path: &[(ResourceId, f64)], rate_max: f64) -> BundleId {
        let uses = path.iter().map(|(resource, weight)| Use {
            resource: *resource,
            weight: *weight,
            position: 0,
        });
        self.bundles.push(Bundle {
            uses: uses.collect(),
            rate_max,
            rate: 0.0,
            clock: 0.0,
            at: 0.0,
            flows: BinaryHeap::new(),
            version: 0,
            counted: 0,
            seen: 0,
            share: None,
            dirty: false,
        });
        self.bundles.len() as BundleId - 1
    }

    /// Sets the weight of a bundle's flows on the resource at this place of its path. The bundle
    /// has no flows.
    pub(crate) fn set_weight(&mut self, id: BundleId, place: usize, weight: f64) {
        if self.bundles[id as usize].uses[place].weight == weight {
            return;
        }
        // Its last flow may have ended just now, so that it still counts as a user.
        if self.bundles[id as usize].counted > 0 {
            self.bundles[id as usize].counted = 0;
            for place in 0..self.bundles[id as usize].uses.len() {
                self.remove_user(id, place);
            }
        }
        self.bundles[id as usize].uses[place].weight = weight;
    }

    /// Adds a flow of this size; `owner` is notified when it ends.
    pub(crate) fn add_flow(&mut self, now: f64, id: BundleId, size: f64, owner: u32) {
        let bundle = &mut self.bundles[id as usize];
        bundle.sync(now);
        if bundle.flows.is_empty() {
            bundle.clock = 0.0;
        }
        let end = bundle.clock + size;
        bundle.flows.push(Reverse((Amount(end), owner)));
        self.mark(id);
    }

    /// Ends the flows that are due, and returns their owners. None if the ending is out of date.
    pub(crate) fn end(&mut self, now: f64, ending: (BundleId, u32), owners: &mut Vec<u32>) {
        let (id, version) = ending;
        let bundle = &mut self.bundles[id as usize];
        if bundle.version != version {
            return;
        }
        bundle.sync(now);
        let Some(&Reverse((first, _))) = bundle.flows.peek() else {
            return;
        };
        // The clock has been computed and may have missed by the last digits.
        bundle.clock = bundle.clock.max(first.0);
        let due = bundle.clock * (1.0 + SAME);
        while let Some(&Reverse((end, owner))) = bundle.flows.peek()
            && end.0 <= due
        {
            bundle.flows.pop();
            owners.push(owner);
        }
        self.mark(id);
    }

    fn mark(&mut self, id: BundleId) {
        let bundle = &mut self.bundles[id as usize];
        bundle.version += 1;
        if !bundle.dirty {
            bundle.dirty = true;
            self.dirty.push(id);
        }
    }

    /// Computes the rates anew where anything has changed, and reports the new ends of flows.
    pub(crate) fn settle(&mut self, now: f64, report: &mut dyn FnMut(Ending)) {
        if self.dirty.is_empty() && self.freed.is_empty() {
            return;
        }
        self.epoch += 1;
        self.component.clear();
        self.touched.clear();
        self.opened.clear();
        for index in 0..self.dirty.len() {
            let id = self.dirty[index];
            let bundle = &self.bundles[id as usize];
            if bundle.counted != bundle.flows.len() as u32 {
                self.recount(id);
            }
        }
        while let Some(resource) = self.freed.pop() {
            self.open(resource);
        }
        self.share_out();
        for &id in &self.component {
            self.bundles[id as usize].adopt(now, id, report);
        }
        for &id in &self.dirty {
            let bundle = &mut self.bundles[id as usize];
            // Others have just been reported, because they are in the component and their rate has
            // changed.
            if std::mem::take(&mut bundle.dirty) {
                bundle.report(id, report);
            }
        }
        self.dirty.clear();
    }

    /// Takes note of how many flows a bundle has.
    fn recount(&mut self, id: BundleId) {
        let count = self.bundles[id as usize].flows.len() as u32;
        let before = std::mem::replace(&mut self.bundles[id as usize].counted, count);
        for place in 0..self.bundles[id as usize].uses.len() {
            let Use {
                resource, weight, ..
            } = self.bundles[id as usize].uses[place];
            if weight == 0.0 {
                continue;
            }
            self.open(resource);
            let users = &mut self.resources[resource as usize].users;
            if before == 0 {
                self.bundles[id as usize].uses[place].position = users.len() as u32;
                users.push((id, place as u32));
            } else if count == 0 {
                self.remove_user(id, place);
            }
        }
    }

    /// Takes a bundle off a resource of its path, if it counts there.
    fn remove_user(&mut self, id: BundleId, place: usize) {
        let used = self.bundles[id as usize].uses[place];
        if used.weight == 0.0 {
            return;
        }
        self.freed.push(used.resource);
        let users = &mut self.resources[used.resource as usize].users;
        users.swap_remove(used.position as usize);
        if let Some(&(moved, of)) = users.get(used.position as usize) {
            self.bundles[moved as usize].uses[of as usize].position = used.position;
        }
    }
}

impl Resource {
    /// The share of each unit of the load that is not frozen yet. `None` if there is no such load.
    fn share(&self) -> Option<Amount> {
        (self.unfrozen > 0 && self.load > 0.0).then(|| Amount(self.left / self.load))
    }
}

impl Bundle {
    /// Brings the clock to this time.
    fn sync(&mut self, now: f64) {
        if !self.flows.is_empty() {
            self.clock += self.rate * (now - self.at);
        }
        self.at = now;
    }

    /// Takes on the rate that was computed.
    fn adopt(&mut self, now: f64, id: BundleId, report: &mut dyn FnMut(Ending)) {
        let Some(rate) = self.share.take() else {
            return;
        };
        if rate != self.rate {
            self.sync(now);
            self.rate = rate;
            self.version += 1;
            self.dirty = false;
            self.report(id, report);
        }
    }

    fn report(&self, bundle: BundleId, report: &mut dyn FnMut(Ending)) {
        if let Some(Reverse((end, _))) = self.flows.peek() {
            let time = self.at + (end.0 - self.clock).max(0.0) / self.rate;
            let version = self.version;
            report(Ending {
                time,
                bundle,
                version,
            });
        }
    }
}

#[cfg(test)]
mod tests;
