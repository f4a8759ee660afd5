//! Tests of levels inside hosts: results of composed algorithms, traffic between hosts, and names
//! without components for such levels.

mod family;

use family::request;
use weft_algorithms::{
    MemoryClass, Parts, Reach, ScheduleRequest, Selection, Topology, family as choices, select,
};
use weft_schedule::{Collective, Mapped, Schedule, VerifyOptions, verify};

/// Domains and hosts, by rank: equal and unequal ones, on one host and on several, one and two
/// levels.
fn topologies() -> Vec<Topology> {
    let one_host = |levels: &[&[u32]]| {
        let levels: Vec<Vec<u32>> = levels.iter().map(|level| level.to_vec()).collect();
        Topology::domains(&levels, &vec![0; levels[0].len()]).unwrap()
    };
    vec![
        one_host(&[&[0, 0, 1]]),
        one_host(&[&[0, 0, 1, 1]]),
        one_host(&[&[0, 1, 0, 1, 1]]),
        one_host(&[&[0, 0, 0, 1, 1, 2, 2, 2]]),
        one_host(&[&[0, 0, 1, 1, 2, 2, 3, 3], &[0, 0, 0, 0, 1, 1, 1, 1]]),
        one_host(&[&[0, 0, 1, 2, 2, 3, 4], &[0, 0, 0, 1, 1, 1, 1]]),
        Topology::domains(&[vec![0, 0, 1, 1, 0, 0, 1, 1]], &[0, 0, 0, 0, 1, 1, 1, 1]).unwrap(),
        Topology::domains(&[vec![0, 0, 1, 0, 1, 1, 0]], &[0, 0, 0, 1, 1, 1, 2]).unwrap(),
    ]
}

/// For each rank, its host: the ranks of a host map each other's memory.
fn hosts(topology: &Topology) -> Vec<u32> {
    let level = topology.levels_inside_hosts();
    let host = |rank| match level < topology.depth() {
        true => topology.unit_of(level, rank),
        false => 0,
    };
    (0..topology.ranks()).map(host).collect()
}

fn check(selection: &Selection, asked: &ScheduleRequest<'_>) {
    let programs: Vec<Schedule> = (0..asked.ranks)
        .map(|rank| selection.build(&ScheduleRequest { rank, ..*asked }))
        .collect();
    let options = VerifyOptions {
        hosts: (asked.memory == MemoryClass::Ordinary).then(|| hosts(asked.topology)),
        ..VerifyOptions::mapped(match asked.memory {
            MemoryClass::Ordinary => Mapped::Scratch,
            MemoryClass::Symmetric => Mapped::All,
        })
    };
    let report = verify(&programs, &options)
        .unwrap_or_else(|error| panic!("{} {asked:?}: {error}", selection.name()));
    let rounds: u32 = (selection.cost(asked).phases.iter())
        .map(|phase| phase.rounds)
        .sum();
    let counted = report.latency_steps;
    assert!(
        rounds >= counted,
        "{} {asked:?}: {counted} rounds, but {rounds} are priced",
        selection.name()
    );
}

#[test]
fn every_choice_is_right_in_any_memory() {
    for topology in topologies() {
        let several_hosts = hosts(&topology).iter().any(|host| *host != 0);
        for (name, collective) in [
            ("all-reduce", Collective::AllReduce),
            ("broadcast", Collective::Broadcast { root: 1 }),
            ("reduce", Collective::Reduce { root: 2 }),
        ] {
            let mut deepest = 0;
            for selection in choices(name, &topology) {
                if !matches!(selection.algorithm.requires.parts, Parts::Levels { .. }) {
                    continue;
                }
                deepest = deepest.max(selection.parts.len() - 1);
                let requires = selection.requires_in(&topology);
                assert!(requires.mapped < Reach::All || !several_hosts);
                for memory in [MemoryClass::Ordinary, MemoryClass::Symmetric] {
                    let applies = memory == MemoryClass::Ordinary || !several_hosts;
                    if applies && (memory == MemoryClass::Symmetric || !requires.symmetric) {
                        check(&selection, &request(collective, memory, &topology));
                    }
                }
            }
            assert_eq!(deepest, topology.depth(), "{name}");
        }
    }
}

#[test]
fn components_without_domains_apply_to_hosts() {
    let (domains, hosts) = (vec![0, 0, 1, 1, 0, 0, 1, 1], [0, 0, 0, 0, 1, 1, 1, 1]);
    let found = Topology::domains(&[domains], &hosts).unwrap();
    let plain = Topology::hosts(&hosts);
    for name in [
        "ring",
        "torus",
        "parameter-server",
        "multi-rail(slice-reduce, ring)",
        "leaders(slice-reduce, ring)",
    ] {
        let selection = select("all-reduce", name).unwrap();
        let of = |topology: &Topology| {
            let asked = request(Collective::AllReduce, MemoryClass::Ordinary, topology);
            selection.build(&ScheduleRequest { rank: 3, ..asked })
        };
        assert_eq!(of(&found), of(&plain), "{name}");
        assert_eq!(
            selection
                .shifts(&request(
                    Collective::AllReduce,
                    MemoryClass::Ordinary,
                    &found
                ))
                .apart,
            selection
                .shifts(&request(
                    Collective::AllReduce,
                    MemoryClass::Ordinary,
                    &plain
                ))
                .apart
        );
    }
    let deep = select("all-reduce", "multi-rail(slice-reduce, slice-reduce, ring)").unwrap();
    assert_eq!(deep.requires().mapped, Reach::All);
    assert_eq!(deep.requires_in(&found).mapped, Reach::Unit);
    assert_eq!(deep.requires_in(&plain).mapped, Reach::All);
}

#[test]
fn nothing_crosses_between_the_domains_of_one_host() {
    let found = Topology::domains(&[vec![0, 0, 1, 1]], &[0; 4]).unwrap();
    for selection in choices("all-reduce", &found) {
        let cost = selection.cost(&request(
            Collective::AllReduce,
            MemoryClass::Ordinary,
            &found,
        ));
        let crossing = cost.sum(|phase| phase.crossing);
        assert_eq!(crossing, 0.0, "{}", selection.name());
    }
}
