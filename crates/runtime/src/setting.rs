//! What a group is like, as far as choices depend on it.

use weft_algorithms::{Reach, Topology};
use weft_schedule::Rank;

use crate::Error;
use crate::policy::Policy;
use crate::rendezvous::Meeting;

/// What a schedule is made for, beside the call.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) rank: Rank,
    pub(crate) ranks: u32,
    pub(crate) topology: Topology,
}

/// What every rank of a group knows alike, and a choice may therefore depend on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Setting {
    /// The number of ranks.
    pub(crate) ranks: u32,
    /// What ranks map of each other's pools: those of all ranks, those of their innermost unit, or none.
    pub(crate) reach: Reach,
    /// Whether ranks are on several units, and some unit has several of them.
    pub(crate) uneven: bool,
    /// Whether sums must not depend on algorithm, tile size and placement.
    pub(crate) reproducible: bool,
}

impl Setting {
    /// Of a group that has met. Refuses levels that are not this group's.
    pub(crate) fn of(meeting: &Meeting, policy: &Policy) -> Result<(Topology, Setting), Error> {
        let hosts: Vec<u32> = meeting.members.iter().map(|member| member.host).collect();
        let topology = topology(policy, &hosts)?;
        let setting = Setting {
            ranks: meeting.members.len() as u32,
            reach: reach(meeting, &topology),
            uneven: uneven(&topology),
            reproducible: policy.reproducible,
        };
        Ok((topology, setting))
    }

    pub(crate) fn mapped(self) -> bool {
        self.reach == Reach::All
    }
}

/// The levels that the user has told, else the hosts.
fn topology(policy: &Policy, hosts: &[u32]) -> Result<Topology, Error> {
    if policy.levels.is_empty() {
        return Ok(match hosts.iter().all(|host| *host == hosts[0]) {
            true => Topology::flat(hosts.len() as u32),
            false => Topology::hosts(hosts),
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

/// What ranks map of each other.
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

/// Whether there are several innermost units, and several ranks in one of them.
fn uneven(topology: &Topology) -> bool {
    if topology.depth() == 0 {
        return false;
    }
    let units = topology.units(0);
    units.len() > 1 && units.iter().any(|unit| unit.len() > 1)
}
