//! Where many meet at few: only the links of these few are reckoned with, and the others as long as they are short.
//!
//! [Note: Hubs] Max-min fair rates are unique: they are those rates that overload nothing and under which every flow passes something that
//! is used up, or reaches a limit of its own, and on which no other flow has more. So leave some links out of the reckoning. If what
//! comes out overloads none of them, it is what comes out with all links; if it does, take in the overloaded ones and reckon again.
//! In a star all flows to the hub, or from it, then have the same path and are one bundle: a flow that begins or ends costs a
//! logarithm, where it would change the rate of every other bundle.
//!
//! A host's link in one direction is a *hub* if many hosts talk through it, and *watched* if it is none but whoever talks through it talks to
//! a hub. A watched link that is overloaded after a change of rates is *short*, until nothing flows on it, or it is found to have ample
//! room again: short links are looked over once for as many changes of rates as they have flows, so that this costs nothing to speak of.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::Machine;
use crate::orbits::Orbits;
use crate::program::Program;
use crate::share::{BundleId, ResourceId, Shares};

/// A hub talks to at least so many other hosts, and to one in [`ONE_IN`].
const HOSTS_MIN: u32 = 8;
const ONE_IN: u32 = 4;
/// A watched link may carry more than it can by this share: by the last digits.
const SAME: f64 = 1e-9;
/// A short link that carries at most this share of what it can has ample room.
const AMPLE: f64 = 0.5;

/// Directions of a host's link.
const SENDS: usize = 0;
const RECEIVES: usize = 1;

/// Which links are watched.
#[derive(Default)]
pub(crate) struct Hubs {
    /// By host and direction. Empty: none.
    watched: Vec<[bool; 2]>,
}

impl Hubs {
    /// The hubs of a machine whose hosts are all played. None where switches bind flows.
    pub(crate) fn of(
        machine: &Machine,
        orbits: Orbits,
        host_of_rank: &[u32],
        programs: &[Program],
    ) -> Self {
        if machine.switches.iter().any(|s| s.oversubscription > 1.0) {
            return Hubs::default();
        }
        let hosts = machine.hosts.len();
        let mut talking = vec![[0; 2]; hosts];
        for_each_pair(orbits, host_of_rank, programs, |near, far| {
            talking[near][SENDS] += 1;
            talking[far][RECEIVES] += 1;
        });
        let least = HOSTS_MIN.max(hosts as u32 / ONE_IN);
        let is_hub = |host: usize, direction: usize| talking[host][direction] >= least;
        let mut watched: Vec<[bool; 2]> = (0..hosts)
            .map(|host| [SENDS, RECEIVES].map(|direction| !is_hub(host, direction)))
            .collect();
        for_each_pair(orbits, host_of_rank, programs, |near, far| {
            watched[near][SENDS] &= is_hub(far, RECEIVES);
            watched[far][RECEIVES] &= is_hub(near, SENDS);
        });
        Hubs { watched }
    }

    /// Whether what a host sends is watched.
    pub(crate) fn watches_sending(&self, host: u32) -> bool {
        self.watches(host, SENDS)
    }

    /// Whether what a host receives is watched.
    pub(crate) fn watches_receiving(&self, host: u32) -> bool {
        self.watches(host, RECEIVES)
    }

    fn watches(&self, host: u32, direction: usize) -> bool {
        let host = self.watched.get(host as usize);
        host.is_some_and(|directions| directions[direction])
    }
}

/// Says which hosts talk to each other: once for both directions of each pair.
fn for_each_pair(
    orbits: Orbits,
    host_of_rank: &[u32],
    programs: &[Program],
    mut pair: impl FnMut(usize, usize),
) {
    let played: Vec<(u32, &Program)> = (0..)
        .zip(programs)
        .map(|(index, program)| (host_of_rank[orbits.rank(index) as usize], program))
        .collect();
    for of_host in played.chunk_by(|a, b| a.0 == b.0) {
        let near = of_host[0].0;
        let peers = of_host.iter().flat_map(|(_, program)| &program.peers);
        let far: BTreeSet<u32> = peers.map(|peer| host_of_rank[*peer as usize]).collect();
        for far in far.into_iter().filter(|far| *far != near) {
            pair(near as usize, far as usize);
        }
    }
}

/// The bundles of the flows on one link, ascending, each as often as it has flows there.
type Load = Vec<BundleId>;

/// A watched link on which something flows.
#[derive(Default)]
struct Watched {
    /// The bundles of its flows, as long as it is not short, and whose they are.
    flows: Vec<(BundleId, u32)>,
    short: bool,
}

/// What the watched links carry.
pub(crate) struct Watch {
    /// What each link can carry.
    capacity: f64,
    links: HashMap<ResourceId, Watched>,
    /// The links that are not short, by their loads: those with the same load are looked at once.
    alike: BTreeMap<Load, BTreeSet<ResourceId>>,
    /// How many flows each bundle has on watched links, short or not.
    bundles: BTreeMap<BundleId, u32>,
    /// The most flows that a link has had at once.
    most_flows: usize,
    short: BTreeSet<ResourceId>,
    /// Changes of rates since the short links were last looked over.
    changes: usize,
}

impl Watch {
    /// Watches links of this capacity.
    pub(crate) fn new(capacity: f64) -> Self {
        Watch {
            capacity,
            links: HashMap::new(),
            alike: BTreeMap::new(),
            bundles: BTreeMap::new(),
            most_flows: 0,
            short: BTreeSet::new(),
            changes: 0,
        }
    }

    /// A flow of this bundle begins on the link. Whether the link is short, so that the flow must reckon with it.
    pub(crate) fn begin(&mut self, id: ResourceId, bundle: BundleId, owner: u32) -> bool {
        *self.bundles.entry(bundle).or_default() += 1;
        self.change(id, |flows| flows.push((bundle, owner)))
    }

    /// The owner's flow has ended on the link.
    pub(crate) fn end(&mut self, id: ResourceId, owner: u32) {
        let mut ended = None;
        self.change(id, |flows| {
            let place = flows.iter().position(|(_, of)| *of == owner);
            ended = place.map(|place| flows.remove(place).0);
        });
        if let Some(bundle) = ended
            && let Some(flows) = self.bundles.get_mut(&bundle)
        {
            *flows -= 1;
            if *flows == 0 {
                self.bundles.remove(&bundle);
            }
        }
    }

    fn change(&mut self, id: ResourceId, change: impl FnOnce(&mut Vec<(BundleId, u32)>)) -> bool {
        let link = self.links.entry(id).or_default();
        if !link.short {
            forget(&mut self.alike, id, link);
        }
        change(&mut link.flows);
        self.most_flows = self.most_flows.max(link.flows.len());
        if link.flows.is_empty() {
            link.short = false;
            self.short.remove(&id);
        } else if !link.short {
            self.alike.entry(link.load()).or_default().insert(id);
        }
        link.short
    }

    /// The links that carry more than they can at the rates that are in force.
    pub(crate) fn overloaded(&mut self, shares: &Shares) -> Vec<ResourceId> {
        self.changes += 1;
        let most = self.capacity * (1.0 + SAME);
        let rates = self.bundles.keys().map(|bundle| shares.rate(*bundle));
        if rates.fold(0.0, f64::max) * self.most_flows as f64 <= most {
            return Vec::new();
        }
        let carried = |load: &Load| load.iter().map(|bundle| shares.rate(*bundle)).sum::<f64>();
        let loads = self.alike.iter().filter(|(load, _)| carried(load) > most);
        loads.flat_map(|(_, links)| links.iter().copied()).collect()
    }

    /// Takes note that a link is short, and says which flows of which bundles must reckon with it from now on.
    pub(crate) fn take_in(&mut self, id: ResourceId) -> Vec<(BundleId, u32)> {
        let link = self.links.entry(id).or_default();
        forget(&mut self.alike, id, link);
        link.short = true;
        self.short.insert(id);
        link.flows.clone()
    }

    /// The short links, if it is time to look them over.
    pub(crate) fn due(&mut self) -> Vec<ResourceId> {
        let flows = self.short.iter().map(|id| self.links[id].flows.len());
        if self.changes < self.short.len() || self.changes < flows.sum() {
            return Vec::new();
        }
        self.changes = 0;
        self.short.iter().copied().collect()
    }

    /// The flows on a link.
    pub(crate) fn flows(&self, id: ResourceId) -> &[(BundleId, u32)] {
        self.links.get(&id).map_or(&[], |link| &link.flows)
    }

    /// Takes note that a short link carries so much, and whether that leaves ample room, so that its flows need not reckon with it any more.
    pub(crate) fn let_go(&mut self, id: ResourceId, carried: f64) -> bool {
        let ample = carried <= self.capacity * AMPLE;
        if ample && let Some(link) = self.links.get_mut(&id) {
            link.short = false;
            self.short.remove(&id);
            self.alike.entry(link.load()).or_default().insert(id);
        }
        ample
    }
}

impl Watched {
    fn load(&self) -> Load {
        let mut load: Load = self.flows.iter().map(|(bundle, _)| *bundle).collect();
        load.sort_unstable();
        load
    }
}

/// Takes a link out of those with the same load.
fn forget(alike: &mut BTreeMap<Load, BTreeSet<ResourceId>>, id: ResourceId, link: &Watched) {
    let load = link.load();
    if let Some(links) = alike.get_mut(&load) {
        links.remove(&id);
        if links.is_empty() {
            alike.remove(&load);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_with_the_same_flows_are_one_case_until_they_are_short() {
        let mut shares = Shares::default();
        let hubs = [3.0, 4.0].map(|capacity| shares.add_resource(capacity));
        let bundles = hubs.map(|hub| shares.add_bundle(&[(hub, 1.0)], f64::INFINITY));
        let mut watch = Watch::new(4.5);
        for link in 0..3 {
            shares.add_flow(0.0, bundles[0], 1.0, link);
            assert!(!watch.begin(link, bundles[0], link));
        }
        shares.settle(0.0, &mut |_| {});
        assert_eq!((watch.alike.len(), watch.overloaded(&shares)), (1, vec![]));
        shares.add_flow(0.0, bundles[1], 1.0, 3);
        assert!(!watch.begin(2, bundles[1], 3));
        shares.settle(0.0, &mut |_| {});
        // A third of 3, and 4.
        assert_eq!((watch.alike.len(), watch.overloaded(&shares)), (2, vec![2]));
        assert_eq!(watch.take_in(2), [(bundles[0], 2), (bundles[1], 3)]);
        assert_eq!((watch.alike.len(), watch.overloaded(&shares)), (1, vec![]));
        assert!(watch.begin(2, bundles[1], 4));
        for owner in 2..5 {
            watch.end(2, owner);
        }
        assert!(!watch.begin(2, bundles[1], 5));
    }
}
