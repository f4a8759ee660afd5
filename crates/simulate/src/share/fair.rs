//! Fair rates of the flows that a change reaches.
//!
//! [Note: Reach] Rates are max-min fair if every flow has a *bottleneck*: a limit of its own, or a
//! full resource on which no flow has more. Let the resources where flows have come or gone be
//! *open*, and share them out anew among all their flows, while all other flows hold their rates.
//! If that changes the load of a closed resource which is or was full, the flows that have their
//! bottleneck there may have lost it: open that as well, and share out again. The same if some flow
//! is bound by a full resource on which one that holds its rate has more. If nothing is left to be
//! opened, every flow has a bottleneck; and as there is only one way to share fairly, it equals the
//! result of sharing out everything anew.
//!
//! Flows that compete with each other in long chains, as do those of many hosts, are thus left
//! alone as soon as their rates do not change. The property test holds every result against the
//! definition.

use std::cmp::Reverse;

use super::{Amount, BundleId, ResourceId, SAME, Shares};

/// A resource counts as full if less than this share of it is left.
const FULL: f64 = 1e-9;
/// After this many rounds of opening more, everything connected is opened.
const ROUNDS: u32 = 8;

impl Shares {
    pub(super) fn open(&mut self, resource: ResourceId) {
        let shared = &mut self.resources[resource as usize];
        if shared.open != self.epoch {
            shared.open = self.epoch;
            self.opened.push(resource);
        }
    }

    /// Shares out the open resources, and as many more as need be.
    pub(super) fn share_out(&mut self) {
        let mut expanded = 0;
        for round in 0.. {
            while let Some(resource) = self.opened.get(expanded) {
                self.take_users_of(*resource);
                expanded += 1;
                if round == ROUNDS {
                    for index in 0..self.touched.len() {
                        self.open(self.touched[index]);
                    }
                }
            }
            self.fill();
            for resource in self.outdated() {
                self.open(resource);
            }
            if expanded == self.opened.len() {
                return;
            }
        }
    }

    /// Lets the flows on a resource have new rates.
    fn take_users_of(&mut self, resource: ResourceId) {
        self.touch(resource);
        for index in 0..self.resources[resource as usize].users.len() {
            let (user, _) = self.resources[resource as usize].users[index];
            if self.bundles[user as usize].seen == self.epoch {
                continue;
            }
            self.bundles[user as usize].seen = self.epoch;
            self.component.push(user);
            for place in 0..self.bundles[user as usize].uses.len() {
                let used = self.bundles[user as usize].uses[place];
                if used.weight > 0.0 {
                    self.touch(used.resource);
                }
            }
        }
    }

    fn touch(&mut self, resource: ResourceId) {
        let shared = &mut self.resources[resource as usize];
        if shared.seen != self.epoch {
            shared.seen = self.epoch;
            self.touched.push(resource);
        }
    }

    /// Raises all rates equally; a bundle that reaches a limit, its own or that of an exhausted
    /// resource, stays there.
    fn fill(&mut self) {
        for &id in &self.component {
            self.bundles[id as usize].share = None;
        }
        self.bottlenecks.clear();
        for index in 0..self.touched.len() {
            self.prepare(self.touched[index]);
        }
        let limit = |id: &BundleId| Amount(self.bundles[*id as usize].rate_max);
        self.component.sort_unstable_by_key(|id| (limit(id), *id));
        let mut next = 0;
        while next < self.component.len() {
            let id = self.component[next];
            if self.bundles[id as usize].share.is_some() {
                next += 1;
                continue;
            }
            let own = self.bundles[id as usize].rate_max;
            match self.bottlenecks.pop() {
                Some(Reverse((share, resource))) if share.0 < own => {
                    if self.resources[resource as usize].share() == Some(share) {
                        self.exhaust(resource, share.0);
                    }
                }
                other => {
                    self.bottlenecks.extend(other);
                    self.freeze(id, own, None);
                }
            }
        }
    }

    /// Computes the capacity of a resource that is left for the rates that are computed anew.
    fn prepare(&mut self, id: ResourceId) {
        let resource = &mut self.resources[id as usize];
        resource.left = resource.capacity;
        (resource.load, resource.unfrozen, resource.held) = (0.0, 0, 0.0);
        for (user, place) in &resource.users {
            let bundle = &self.bundles[*user as usize];
            let load = bundle.uses[*place as usize].weight * f64::from(bundle.counted);
            if bundle.seen == self.epoch {
                resource.load += load;
                resource.unfrozen += 1;
            } else {
                resource.left -= load * bundle.rate;
                resource.held = resource.held.max(bundle.rate);
            }
        }
        resource.left = resource.left.max(0.0);
        if let Some(share) = resource.share() {
            self.bottlenecks.push(Reverse((share, id)));
        }
    }

    /// Freezes all users of a resource at its share. It must be shared out with the flows that hold
    /// more.
    fn exhaust(&mut self, resource: ResourceId, share: f64) {
        for index in 0..self.resources[resource as usize].users.len() {
            let (user, _) = self.resources[resource as usize].users[index];
            let bundle = &self.bundles[user as usize];
            if bundle.seen == self.epoch && bundle.share.is_none() {
                self.freeze(user, share, Some(resource));
            }
        }
        self.resources[resource as usize].unfrozen = 0;
        if self.resources[resource as usize].held > share * (1.0 + SAME) {
            self.open(resource);
        }
    }

    fn freeze(&mut self, id: BundleId, rate: f64, exhausted: Option<ResourceId>) {
        let bundle = &mut self.bundles[id as usize];
        // Results computed from remainders differ in the last digits.
        let same = (rate - bundle.rate).abs() <= SAME * rate;
        bundle.share = Some(if same { bundle.rate } else { rate });
        for used in &bundle.uses {
            if exhausted == Some(used.resource) || used.weight == 0.0 {
                continue;
            }
            let load = used.weight * f64::from(bundle.counted);
            let resource = &mut self.resources[used.resource as usize];
            resource.left = (resource.left - load * rate).max(0.0);
            resource.load -= load;
            resource.unfrozen -= 1;
            if let Some(share) = resource.share() {
                self.bottlenecks.push(Reverse((share, used.resource)));
            }
        }
    }

    /// The resources that are not open, are full or were, and carry something else than before.
    fn outdated(&self) -> Vec<ResourceId> {
        let outdated = |id: &&ResourceId| {
            let resource = &self.resources[**id as usize];
            if resource.open == self.epoch {
                return false;
            }
            let (mut before, mut after, mut changed) = (0.0, 0.0, false);
            for (user, place) in &resource.users {
                let bundle = &self.bundles[*user as usize];
                let load = bundle.uses[*place as usize].weight * f64::from(bundle.counted);
                let rate = match bundle.share {
                    Some(share) if bundle.seen == self.epoch => share,
                    _ => bundle.rate,
                };
                before += load * bundle.rate;
                after += load * rate;
                changed |= rate != bundle.rate;
            }
            changed && f64::max(before, after) >= resource.capacity * (1.0 - FULL)
        };
        self.touched.iter().filter(outdated).copied().collect()
    }
}
