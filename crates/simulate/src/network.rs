//! What flows pass: paths through hosts and switches, and what processors and memory of a host give its ranks.

use std::collections::HashMap;

use weft_schedule::Rank;

use crate::buckets::Buckets;
use crate::hubs::{Hubs, Watch};
use crate::orbits::Orbits;
use crate::share::{BundleId, Ending, ResourceId, Shares};
use crate::{Link, Machine};

/// Where a message goes by.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// Through memory that both map.
    Memory,
    /// Over a link, as part of this bundle.
    Link {
        bundle: BundleId,
        latency_s: f64,
        loopback: bool,
        /// A link on it with which the bundle does not reckon, unless it is short.
        watched: Option<ResourceId>,
    },
}

/// The part of the machine that the representatives see, as resources.
pub(crate) struct Network<'a> {
    machine: &'a Machine,
    orbits: Orbits,
    host_of_rank: &'a [u32],
    hubs: Hubs,
    watch: Watch,
    pub(crate) shares: Shares,
    buckets: Buckets,
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

impl<'a> Network<'a> {
    /// Reckons with all links but those that are to be watched.
    pub(crate) fn new(
        machine: &'a Machine,
        orbits: Orbits,
        host_of_rank: &'a [u32],
        hubs: Hubs,
    ) -> Self {
        let (mut shares, mut buckets) = (Shares::default(), Buckets::default());
        let last = host_of_rank[orbits.rank(orbits.representatives() - 1) as usize];
        let played = &machine.hosts[..=last as usize];
        // Of what ranks share that are not played, those that are have their part.
        let part = orbits.part(machine.hosts[0]);
        let shared = (machine.shared_cores).map(|cores| {
            let ranks = machine.ranks();
            shares.add_resource(f64::from(cores.min(ranks)) * orbits.part(ranks))
        });
        let link = &machine.network;
        let mut line = |shares: &mut Shares| {
            buckets.add_line(shares, link.bytes_per_s * part, link.burst_bytes * part)
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
        let hosts = played.iter().map(host).collect();
        let level = |switch: &crate::Switch| {
            let units = played.chunks(switch.hosts as usize);
            let unit = |hosts: &[u32]| {
                let below = hosts.len() as f64 * machine.network.bytes_per_s;
                let capacity = below * part / switch.oversubscription;
                [shares.add_resource(capacity), shares.add_resource(capacity)]
            };
            units.map(unit).collect()
        };
        let switches = machine.switches.iter().map(level).collect();
        Network {
            machine,
            orbits,
            host_of_rank,
            watch: Watch::new(machine.network.bytes_per_s * part),
            hubs,
            shares,
            buckets,
            bundles: HashMap::new(),
            hosts,
            switches,
        }
    }

    /// The way from a representative to any rank.
    pub(crate) fn way(&mut self, from: Rank, to: Rank) -> Way {
        let host = |rank: Rank| self.host_of_rank[rank as usize];
        let (near, far) = (host(from), host(to));
        if near == far {
            let Some(link) = &self.machine.host.loopback else {
                return Way::Memory;
            };
            let loopback = self.hosts[near as usize].loopback;
            let path = loopback.into_iter().collect();
            return Way::Link {
                bundle: self.bundle(path, link.flow_bytes_per_s()),
                latency_s: link.latency_s,
                loopback: true,
                watched: None,
            };
        }
        let image = host(self.orbits.rank(self.orbits.representative(to)));
        let switches = &self.machine.switches;
        let levels = switches
            .iter()
            .take_while(|switch| near / switch.hosts != far / switch.hosts)
            .count();
        let (sends, receives) = (
            self.hosts[near as usize].sends,
            self.hosts[image as usize].receives,
        );
        let (mut path, watched) = match &self.hubs {
            hubs if hubs.watches_sending(near) => (vec![receives], Some(sends)),
            hubs if hubs.watches_receiving(image) => (vec![sends], Some(receives)),
            _ => (vec![sends, receives], None),
        };
        let mut latency_s = self.machine.network.latency_s;
        for (level, switch) in switches.iter().enumerate().take(levels) {
            latency_s += switch.latency_s;
            if switch.oversubscription > 1.0 {
                let unit = |host: u32| self.switches[level][(host / switch.hosts) as usize];
                path.extend([unit(near)[0], unit(image)[1]]);
            }
        }
        Way::Link {
            bundle: self.bundle(path, self.machine.network.flow_bytes_per_s()),
            latency_s,
            loopback: false,
            watched,
        }
    }

    /// Begins a flow of a pair of ranks, which has no other one.
    pub(crate) fn begin(&mut self, now: f64, way: Way, bytes: f64, pair: u32) {
        let Way::Link {
            bundle, watched, ..
        } = way
        else {
            unreachable!("flows go over links");
        };
        let bundle = match watched {
            Some(link) if self.watch.begin(link, bundle, pair) => self.with_link(bundle, link),
            _ => bundle,
        };
        self.shares.add_flow(now, bundle, bytes, pair);
    }

    /// Takes note that the flow of a pair of ranks has ended.
    pub(crate) fn ended(&mut self, way: Way, pair: u32) {
        if let Way::Link {
            watched: Some(link),
            ..
        } = way
        {
            self.watch.end(link, pair);
        }
    }

    /// Computes rates anew where anything has changed, and with all links that are short. Says when to do so again at the
    /// latest.
    pub(crate) fn settle(&mut self, now: f64, tell: &mut dyn FnMut(Ending)) -> Option<f64> {
        self.buckets.turn(now, &mut self.shares);
        loop {
            self.shares.settle(now, tell);
            let short = self.watch.overloaded(&self.shares);
            if short.is_empty() && !self.let_go(now) {
                return self.buckets.next_turn(&self.shares);
            }
            for link in short {
                for (bundle, pair) in self.watch.take_in(link) {
                    let with_link = self.with_link(bundle, link);
                    self.shares.move_flow(now, bundle, with_link, pair);
                }
            }
        }
    }

    /// Leaves links out again that are not short any more, if it is time to look. Whether there were any.
    fn let_go(&mut self, now: f64) -> bool {
        let mut any = false;
        for link in self.watch.due() {
            let flows = self.watch.flows(link).to_vec();
            let bundles: Vec<BundleId> = flows
                .iter()
                .map(|(bundle, _)| self.with_link(*bundle, link))
                .collect();
            let carried = bundles.iter().map(|bundle| self.shares.rate(*bundle)).sum();
            if self.watch.let_go(link, carried) {
                any = true;
                for ((bundle, pair), with_link) in flows.into_iter().zip(bundles) {
                    self.shares.move_flow(now, with_link, bundle, pair);
                }
            }
        }
        any
    }

    /// The bundle of flows with the same path and this link.
    fn with_link(&mut self, bundle: BundleId, link: ResourceId) -> BundleId {
        let path = self.shares.path(bundle).chain([link]).collect();
        self.bundle(path, self.machine.network.flow_bytes_per_s())
    }

    /// All flows with the same path, which have the same limit.
    fn bundle(&mut self, path: Vec<ResourceId>, rate_max: f64) -> BundleId {
        let shares = &mut self.shares;
        let uses: Vec<_> = path.iter().map(|resource| (*resource, 1.0)).collect();
        *(self.bundles.entry(path)).or_insert_with(|| shares.add_bundle(&uses, rate_max))
    }

    /// What the work of a representative's thread takes part in, where it shares anything with others: its cores first, and
    /// the place of the memory in the path, if any.
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
    pub(crate) fn link(&self, loopback: bool) -> &'a Link {
        match &self.machine.host.loopback {
            Some(link) if loopback => link,
            _ => &self.machine.network,
        }
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
