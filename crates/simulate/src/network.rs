//! The resources of flows: paths through hosts and switches, and the processors and memory that the
//! ranks of a host share.

use std::collections::{BTreeSet, HashMap};

use weft_schedule::Rank;

use crate::orbits::Orbits;
use crate::program::SimulatedProgram;
use crate::share::{BundleId, Ending, ResourceId, Shares};
use crate::token_buckets::TokenBuckets;
use crate::{Machine, NetworkLink};

/// Where a message goes by.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MessagePath {
    /// Through memory that both map.
    Memory,
    /// Over a link, as part of this bundle.
    Link {
        bundle: BundleId,
        latency_s: f64,
        loopback: bool,
    },
}

/// The part of the machine that the representatives see, as resources.
pub(crate) struct SimulatedNetwork<'a> {
    machine: &'a Machine,
    orbits: Orbits,
    host_of_rank: &'a [u32],
    implied: Implied,
    pub(crate) shares: Shares,
    token_buckets: TokenBuckets,
    bundles: HashMap<Vec<ResourceId>, BundleId>,
    hosts: Vec<HostResources>,
    /// By level of switches, then by unit: up and down.
    switches: Vec<Vec<[ResourceId; 2]>>,
}

#[derive(Clone, Copy)]
struct HostResources {
    sends: ResourceId,
    receives: ResourceId,
    loopback: Option<ResourceId>,
    cores: Option<ResourceId>,
    memory: Option<ResourceId>,
}

impl<'a> SimulatedNetwork<'a> {
    /// The resources of all links but those that are implied.
    pub(crate) fn new(
        machine: &'a Machine,
        orbits: Orbits,
        host_of_rank: &'a [u32],
        implied: Implied,
    ) -> Self {
        let (mut shares, mut token_buckets) = (Shares::default(), TokenBuckets::default());
        let last = host_of_rank[orbits.rank(orbits.representatives() - 1) as usize];
        let simulated = &machine.hosts[..=last as usize];
        // Resources shared with ranks that are not simulated are scaled to the simulated part.
        let part = orbits.part(machine.hosts[0]);
        let shared = (machine.shared_cores).map(|cores| {
            let ranks = machine.ranks();
            shares.add_resource(f64::from(cores.min(ranks)) * orbits.part(ranks))
        });
        let link = &machine.network;
        let mut line = |shares: &mut Shares| {
            token_buckets.add_line(shares, link.bytes_per_s * part, link.burst_bytes * part)
        };
        let host = |ranks: &u32| HostResources {
            sends: line(&mut shares),
            receives: line(&mut shares),
            loopback: (machine.host.loopback.as_ref())
                .map(|link| shares.add_resource(link.bytes_per_s * part)),
            cores: shared.or_else(|| {
                (*ranks > machine.host.cores)
                    .then(|| shares.add_resource(f64::from(machine.host.cores) * part))
            }),
            memory: (machine.host.memory_bytes_per_s).map(|rate| shares.add_resource(rate * part)),
        };
        let hosts = simulated.iter().map(host).collect();
        let level = |switch: &crate::Switch| {
            let units = simulated.chunks(switch.hosts as usize);
            let unit = |hosts: &[u32]| {
                let below = hosts.len() as f64 * machine.network.bytes_per_s;
                let capacity = below * part / switch.oversubscription;
                [shares.add_resource(capacity), shares.add_resource(capacity)]
            };
            units.map(unit).collect()
        };
        let switches = machine.switches.iter().map(level).collect();
        SimulatedNetwork {
            machine,
            orbits,
            host_of_rank,
            implied,
            shares,
            token_buckets,
            bundles: HashMap::new(),
            hosts,
            switches,
        }
    }

    /// The way from a representative to any rank.
    pub(crate) fn way(&mut self, from: Rank, to: Rank) -> MessagePath {
        let host = |rank: Rank| self.host_of_rank[rank as usize];
        let (near, far) = (host(from), host(to));
        if near == far {
            let Some(link) = &self.machine.host.loopback else {
                return MessagePath::Memory;
            };
            let loopback = self.hosts[near as usize].loopback;
            let path = loopback.into_iter().collect();
            return MessagePath::Link {
                bundle: self.bundle(path, link.flow_bytes_per_s()),
                latency_s: link.latency_s,
                loopback: true,
            };
        }
        let image = host(self.orbits.rank(self.orbits.representative(to)));
        let switches = &self.machine.switches;
        let levels = switches
            .iter()
            .take_while(|switch| near / switch.hosts != far / switch.hosts)
            .count();
        let sends = (!self.implied.has(near, SENDS)).then(|| self.hosts[near as usize].sends);
        let receives =
            (!self.implied.has(image, RECEIVES)).then(|| self.hosts[image as usize].receives);
        let mut path: Vec<ResourceId> = sends.into_iter().chain(receives).collect();
        let mut latency_s = self.machine.network.latency_s;
        for (level, switch) in switches.iter().enumerate().take(levels) {
            latency_s += switch.latency_s;
            if switch.oversubscription > 1.0 {
                let unit = |host: u32| self.switches[level][(host / switch.hosts) as usize];
                path.extend([unit(near)[0], unit(image)[1]]);
            }
        }
        MessagePath::Link {
            bundle: self.bundle(path, self.machine.network.flow_bytes_per_s()),
            latency_s,
            loopback: false,
        }
    }

    /// Begins a flow of a pair of ranks, which has no other one.
    pub(crate) fn begin(&mut self, now: f64, way: MessagePath, bytes: f64, pair: u32) {
        let MessagePath::Link { bundle, .. } = way else {
            unreachable!("flows go over links");
        };
        self.shares.add_flow(now, bundle, bytes, pair);
    }

    /// Computes rates anew where anything has changed. Says when to do so again at the latest.
    pub(crate) fn settle(&mut self, now: f64, report: &mut dyn FnMut(Ending)) -> Option<f64> {
        self.token_buckets.turn(now, &mut self.shares);
        self.shares.settle(now, report);
        self.token_buckets.next_turn(&self.shares)
    }

    /// The number of rates that are computed when a message passes every path: each beginning or
    /// end on a link changes the rates of all paths through it. Links with few paths do not count.
    pub(crate) fn rate_changes(&self) -> u64 {
        let mut paths: HashMap<ResourceId, u64> = HashMap::new();
        for resource in self.bundles.keys().flatten() {
            *paths.entry(*resource).or_default() += 1;
        }
        let many = paths.into_values().filter(|paths| *paths > FEW_PATHS);
        many.map(|paths| paths * paths).sum()
    }

    /// All flows with the same path, which have the same limit.
    fn bundle(&mut self, path: Vec<ResourceId>, rate_max: f64) -> BundleId {
        let shares = &mut self.shares;
        let uses: Vec<_> = path.iter().map(|resource| (*resource, 1.0)).collect();
        *(self.bundles.entry(path)).or_insert_with(|| shares.add_bundle(&uses, rate_max))
    }

    /// The path of a representative's thread's work, where it shares resources with others: its
    /// cores first, and the position of the memory in the path, if any.
    pub(crate) fn processor(&mut self, rank: Rank) -> Option<Processor> {
        let host = self.hosts[self.host_of_rank[rank as usize] as usize];
        let cores = host.cores.map(|id| (id, 1.0));
        let memory = host.memory.map(|id| (id, 0.0));
        let path: Vec<_> = cores.into_iter().chain(memory).collect();
        (!path.is_empty()).then(|| Processor {
            bundle: self.shares.add_bundle(&path, 1.0),
            cores: cores.is_some(),
            memory: memory.map(|_| usize::from(cores.is_some())),
        })
    }

    /// The figures of a link.
    pub(crate) fn link(&self, loopback: bool) -> &'a NetworkLink {
        match &self.machine.host.loopback {
            Some(link) if loopback => link,
            _ => &self.machine.network,
        }
    }
}

/// The number of paths through a link whose rates are computed in negligible time.
const FEW_PATHS: u64 = 100;

/// Directions of a host's link.
const SENDS: usize = 0;
const RECEIVES: usize = 1;

/// Hosts' links that bound nothing, as all that passes them passes one other link of the same rate.
/// Left out, all flows of a star have the same path: they are one bundle, and a flow that begins or
/// ends costs a logarithm.
#[derive(Default)]
pub(crate) struct Implied {
    /// By host and direction. Empty: none.
    links: Vec<[bool; 2]>,
}

impl Implied {
    /// Those of a machine whose hosts are all simulated.
    pub(crate) fn of(orbits: Orbits, host_of_rank: &[u32], programs: &[SimulatedProgram]) -> Self {
        let mut peers: Vec<BTreeSet<u32>> = Vec::new();
        for (index, program) in (0..).zip(programs) {
            let near = host_of_rank[orbits.rank(index) as usize];
            let far = program
                .peers
                .iter()
                .map(|peer| host_of_rank[*peer as usize]);
            peers.resize(peers.len().max(near as usize + 1), BTreeSet::new());
            peers[near as usize].extend(far.filter(|far| *far != near));
        }
        let only = |host: u32| match peers.get(host as usize) {
            Some(far) if far.len() == 1 => far.first(),
            _ => None,
        };
        // Between two hosts that communicate only with each other, the receive rate of one bounds
        // the send rate of the other.
        let links = (0..peers.len() as u32)
            .map(|host| {
                let receives = only(host).is_some_and(|far| only(*far).is_none());
                [only(host).is_some(), receives]
            })
            .collect();
        Implied { links }
    }

    fn has(&self, host: u32, direction: usize) -> bool {
        self.links
            .get(host as usize)
            .is_some_and(|links| links[direction])
    }
}

/// Where the work of one thread appears among the flows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Processor {
    pub(crate) bundle: BundleId,
    /// Whether it shares its core.
    pub(crate) cores: bool,
    /// The place of the memory in its path.
    pub(crate) memory: Option<usize>,
}
