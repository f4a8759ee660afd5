//! Groups with requested choices of algorithms, and their resulting choices.

use std::collections::BTreeMap;

use weft_algorithms::{MemoryClass, ScheduleRequest, Sizes, Topology, select};
use weft_kernels::DType;
use weft_runtime::{Error, Group, Policy, Profile, ProfileRow, Tiling, TransportChoice, Waited};
use weft_schedule::{Collective, Schedule};

use super::Setup;
use super::arena::{Arena, perform};
use super::case::Case;

pub(crate) const ALL_REDUCE: Collective = Collective::AllReduce;

/// A setup with this transport, policy and profiles.
pub(crate) fn setup(transport: TransportChoice, policy: Policy, profiles: Vec<Profile>) -> Setup {
    let mut setup = Setup::from(transport);
    setup.terms.policy = policy;
    setup.terms.profiles = profiles;
    setup
}

/// A policy that allows these algorithms only.
pub(crate) fn forced(pairs: &[(&str, &str)]) -> Policy {
    let pair = |(collective, name): &(&str, &str)| (collective.to_string(), name.to_string());
    Policy {
        algorithms: pairs.iter().map(pair).collect(),
        ..Policy::default()
    }
}

/// A row of a profile.
pub(crate) fn row(
    up_to_bytes: Option<u64>,
    algorithm: &str,
    tile_bytes: Option<u64>,
) -> ProfileRow {
    ProfileRow {
        up_to_bytes,
        algorithm: algorithm.into(),
        tiling: Tiling {
            tile_bytes,
            tiles_in_flight: None,
        },
    }
}

/// A profile for all-reduce.
pub(crate) fn profile(ranks_per_host: &[u32], required: bool, rows: Vec<ProfileRow>) -> Profile {
    Profile {
        source: "a test's profile".into(),
        ranks_per_host: ranks_per_host.to_vec(),
        domains: Vec::new(),
        required,
        table: BTreeMap::from([("all-reduce".to_owned(), rows)]),
        schedules: BTreeMap::new(),
    }
}

/// The algorithm of an all-reduce of `bytes` bytes.
pub(crate) fn name_of(group: &Group, bytes: u64) -> String {
    let explained = group.explain(ALL_REDUCE, bytes, DType::F32, MemoryClass::Ordinary);
    explained.unwrap().algorithm
}

/// Waits until all ranks have the group; a rank that left earlier would be reported as lost.
pub(crate) fn until_all_have_met(group: &Group) {
    perform(&Case::simple(Collective::Barrier, 0), group, None);
}

/// This rank's output.
pub(crate) fn run(group: &Group, case: &Case) -> Result<Vec<u8>, Error> {
    let arena = Arena::new(case, group, None);
    let work = arena.issue(case, group, false)?;
    assert_eq!(work.wait(None, &mut || false)?, Waited::Done);
    Ok(arena.finish())
}

/// An all-reduce by an algorithm.
pub(crate) fn by(algorithm: &str, count: usize) -> Case {
    Case {
        algorithm: Some(algorithm.into()),
        ..Case::simple(ALL_REDUCE, count)
    }
}

/// Every rank's program of one of weft's algorithms.
pub(crate) fn programs(name: &str, collective: Collective, ranks: u32) -> Vec<Schedule> {
    programs_for(MemoryClass::Ordinary, name, collective, ranks)
}

/// The same for calls on such memory.
pub(crate) fn programs_for(
    memory: MemoryClass,
    name: &str,
    collective: Collective,
    ranks: u32,
) -> Vec<Schedule> {
    let selection = select(collective.name(), name).unwrap();
    let topology = Topology::flat(ranks);
    let program = |rank| {
        selection.build(&ScheduleRequest {
            collective,
            ranks,
            rank,
            memory,
            sizes: Sizes::Equal,
            topology: &topology,
            parts: &[],
        })
    };
    (0..ranks).map(program).collect()
}
