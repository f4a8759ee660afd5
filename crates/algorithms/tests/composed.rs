//! Composed algorithms are right for every topology, and cost what their closed forms say.

use weft_algorithms::{Memory, Parts, Reach, Request, Selection, Sizes, Topology, family};
use weft_schedule::{Collective, Mapped, Report, Schedule, VerifyOptions, verify};

/// The host of each rank: this many ranks per host, fewer on the last.
fn hosts(ranks: u32, per_host: u32) -> Vec<u32> {
    (0..ranks).map(|rank| rank / per_host).collect()
}

fn request<'a>(collective: Collective, topology: &'a Topology, memory: Memory) -> Request<'a> {
    Request {
        collective,
        ranks: topology.ranks(),
        rank: 0,
        memory,
        sizes: Sizes::Equal,
        topology,
        parts: &[],
    }
}

/// What the verifier assumes: ranks of different innermost units map nothing, unless memory is symmetric.
fn options(selection: &Selection, topology: &Topology, memory: Memory) -> VerifyOptions {
    let mapped = match (memory, selection.requires().mapped) {
        (Memory::Symmetric, _) => Mapped::All,
        (Memory::Ordinary, Reach::None) => Mapped::None,
        (Memory::Ordinary, _) => Mapped::Scratch,
    };
    let apart = memory == Memory::Ordinary && selection.requires().mapped < Reach::All;
    let hosts = (apart && topology.depth() > 0).then(|| {
        (0..topology.ranks())
            .map(|rank| topology.unit_of(0, rank))
            .collect()
    });
    VerifyOptions {
        hosts,
        ..VerifyOptions::mapped(mapped)
    }
}

fn verified(selection: &Selection, asked: &Request<'_>) -> (Report, Schedule) {
    let programs: Vec<Schedule> = (0..asked.ranks)
        .map(|rank| selection.build(&Request { rank, ..*asked }))
        .collect();
    let options = options(selection, asked.topology, asked.memory);
    let options = match asked.ranks {
        ..=9 => options,
        _ => options.one_tile(),
    };
    let report = verify(&programs, &options).unwrap_or_else(|error| {
        panic!(
            "{} {asked:?}: {error}\n{}",
            selection.name(),
            if asked.ranks < 7 {
                weft_schedule::print(&programs)
            } else {
                String::new()
            }
        );
    });
    (report, programs[0].clone())
}

/// The composed choices among a family.
fn composed(collective: &str, topology: &Topology) -> Vec<Selection> {
    let mut selections = family(collective, topology);
    selections.retain(|selection| !matches!(selection.algorithm.requires.parts, Parts::None));
    selections
}

fn collectives(ranks: u32) -> Vec<(&'static str, Collective)> {
    let root = ranks / 2;
    vec![
        ("all-reduce", Collective::AllReduce),
        ("broadcast", Collective::Broadcast { root }),
        ("reduce", Collective::Reduce { root }),
    ]
}

#[test]
fn verified_on_hosts() {
    for per_host in [1, 2, 3, 4, 8] {
        for ranks in 1..=24 {
            let topology = Topology::hosts(&hosts(ranks, per_host));
            for (name, collective) in collectives(ranks) {
                for selection in composed(name, &topology) {
                    for memory in [Memory::Ordinary, Memory::Symmetric] {
                        verified(&selection, &request(collective, &topology, memory));
                    }
                }
            }
        }
    }
}
