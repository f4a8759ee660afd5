//! Group traits: the properties of a group on which choices depend.

use std::collections::HashMap;

use weft_algorithms::{Reach, Topology};
use weft_bootstrap::{Domain, Meeting, Member, Policy, is_delayed};
use weft_schedule::Rank;

use crate::Error;

/// The group and rank that a schedule is made for.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) rank: Rank,
    pub(crate) ranks: u32,
    pub(crate) topology: Topology,
}

/// Properties that are the same on all ranks of a group, so that a choice may depend on them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GroupTraits {
    /// The number of ranks.
    pub(crate) ranks: u32,
    /// The pools that ranks map: those of all ranks, those of their innermost unit, or none.
    pub(crate) reach: Reach,
    /// Whether ranks are on several units, and some unit has several of them.
    pub(crate) uneven: bool,
    /// Whether sums must not depend on algorithm, tile size and placement.
    pub(crate) reproducible: bool,
    /// Whether the delay of links is so long that the number of steps matters for every size.
    pub(crate) delayed: bool,
    /// Whether hosts share a machine, as emulated ones and containers do, so that messages compete
    /// for its cores.
    pub(crate) crowded: bool,
}

impl Site {
    /// Levels of domains inside hosts, innermost first: for each rank, the lowest rank of its
    /// domain.
    pub(crate) fn domains(&self) -> Vec<Vec<u32>> {
        let ranks = || 0..self.ranks;
        let unit = |level, rank| self.topology.unit_of(level, rank);
        (0..self.topology.levels_inside_hosts())
            .map(|level| ranks().map(|rank| unit(level, rank)).collect())
            .collect()
    }
}

impl GroupTraits {
    /// The topology and traits of a group that has met. Rejects levels that do not fit the group.
    pub(crate) fn of(meeting: &Meeting, policy: &Policy) -> Result<(Topology, GroupTraits), Error> {
        let topology = topology(meeting, policy)?;
        // Inside a host all memory is mapped, regardless of its domains.
        let outside = topology.seen_by(topology.depth() - topology.levels_inside_hosts());
        let traits = GroupTraits {
            ranks: meeting.members.len() as u32,
            reach: reach(meeting, &outside),
            uneven: uneven(&outside),
            reproducible: policy.reproducible,
            delayed: is_delayed(meeting.round_trip),
            crowded: crowded(meeting),
        };
        drop(outside);
        Ok((topology, traits))
    }

    pub(crate) fn mapped(self) -> bool {
        self.reach == Reach::All
    }
}

/// The user's levels or, without them, the hosts with their domains.
fn topology(meeting: &Meeting, policy: &Policy) -> Result<Topology, Error> {
    let hosts: Vec<u32> = meeting.members.iter().map(|member| member.host).collect();
    if policy.levels.is_empty() {
        let topology = match &policy.domains {
            Some(levels) => Topology::domains(levels, &hosts).map_err(Error::Config)?,
            None => found(meeting, &hosts),
        };
        let one_host = hosts.iter().all(|host| *host == hosts[0]);
        return Ok(match one_host && topology.levels_inside_hosts() == 0 {
            true => Topology::flat(hosts.len() as u32),
            false => topology,
        });
    }
    let ranks = policy.levels[0].len();
    if ranks != hosts.len() {
        return Err(Error::Config(format!(
            "topology: level 0 names {ranks} ranks, but the group has {}",
            hosts.len()
        )));
    }
    Topology::levels(policy.levels.clone()).map_err(Error::Config)
}

/// The hosts, and inside them the domains that the operating system reports: shared caches and NUMA
/// nodes, whichever is inside the other. A host is not divided if one of its ranks may run in
/// several domains.
fn found(meeting: &Meeting, hosts: &[u32]) -> Topology {
    let level = |domain: fn(&Domain) -> Option<u32>| -> Vec<u32> {
        let of = |member: &Member| domain(&member.domain);
        let undivided = |host: u32| {
            (meeting.members.iter()).any(|member| member.host == host && of(member).is_none())
        };
        let domain_of = |member: &Member| match undivided(member.host) {
            true => 0,
            false => of(member).unwrap_or_default(),
        };
        meeting.members.iter().map(domain_of).collect()
    };
    let (caches, nodes) = (level(|domain| domain.cache), level(|domain| domain.node));
    let attempts = [
        vec![caches.clone(), nodes.clone()],
        vec![nodes, caches.clone()],
        vec![caches],
    ];
    let found = (attempts.iter()).find_map(|levels| Topology::domains(levels, hosts).ok());
    found.unwrap_or_else(|| Topology::hosts(hosts))
}

/// The pools that ranks map.
fn reach(meeting: &Meeting, topology: &Topology) -> Reach {
    let ranks = meeting.members.len() as u32;
    if (1..ranks).all(|rank| meeting.maps(0, rank)) {
        return Reach::All;
    }
    let within = topology.depth() > 0
        && (0..ranks).all(|rank| meeting.maps(topology.unit_of(0, rank), rank));
    match within {
        true => Reach::Unit,
        false => Reach::None,
    }
}

/// Whether several hosts are on one machine.
fn crowded(meeting: &Meeting) -> bool {
    let mut hosts_of = HashMap::new();
    (meeting.members.iter()).any(|member| {
        *hosts_of
            .entry(member.address.machine())
            .or_insert(member.host)
            != member.host
    })
}

/// Whether there are several innermost units, and several ranks in one of them.
fn uneven(topology: &Topology) -> bool {
    if topology.depth() == 0 {
        return false;
    }
    let units = topology.units(0);
    units.len() > 1 && units.iter().any(|unit| unit.len() > 1)
}
