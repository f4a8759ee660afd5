//! Every algorithm is right, also where tiles and operations follow each other in the same memory, and costs what
//! `docs/algorithms.md` says.

use proptest::prelude::*;
use weft_algorithms::{
    Algorithm, Memory, Reach, Request, Sizes, Topology, collective_name, registry,
};
use weft_schedule::{Collective, Mapped, Report, Schedule, VerifyOptions, verify};

/// What is moved between ranks, in chunks: by the rank that moves most, and by all.
#[derive(PartialEq, Eq, Debug, Default)]
struct Moved {
    most: u64,
    total: u64,
}

/// What an algorithm costs.
#[derive(PartialEq, Eq, Debug, Default)]
struct Cost {
    steps: u32,
    sent: Moved,
    read: Moved,
}

impl Cost {
    fn of(report: &Report) -> Self {
        let moved = |chunks: Vec<u64>| Moved {
            most: chunks.iter().copied().max().unwrap_or_default(),
            total: chunks.iter().sum(),
        };
        Cost {
            steps: report.latency_steps,
            sent: moved(report.sent.iter().map(|rank| rank.chunks()).collect()),
            read: moved(report.read.iter().map(|rank| rank.chunks()).collect()),
        }
    }
}

/// The textbook's formulas, in chunks of the algorithm's grid.
fn textbook(algorithm: &Algorithm, ranks: u32, memory: Memory) -> Cost {
    let others = u64::from(ranks - 1);
    let each = |most| Moved {
        most,
        total: most * u64::from(ranks),
    };
    let once = |most| Moved {
        most,
        total: others,
    };
    let none = Moved::default;
    let floor_log = ranks.ilog2();
    let ceil_log = ranks.next_power_of_two().ilog2();
    let symmetric = memory == Memory::Symmetric;
    let entry = u32::from(symmetric);
    let (steps, sent, read) = match (algorithm.collective, algorithm.name) {
        _ if ranks == 1 => (0, none(), none()),
        ("all-reduce", "ring") => (2 * (ranks - 1), each(2 * others), none()),
        ("all-reduce", "direct") => (1, each(others), none()),
        ("all-reduce", "two-shot") => (2, each(2 * others), none()),
        ("all-reduce", "slice-reduce") if symmetric => (2, each(others), each(others)),
        ("all-reduce", "slice-reduce") => (3, none(), each(2 * others)),
        ("reduce", "binomial") => (floor_log, once(1), none()),
        ("reduce", "slice-reduce") if symmetric => (2, once(1), each(others)),
        ("reduce", "slice-reduce") => {
            let total = u64::from(ranks) * others + others;
            (
                3,
                none(),
                Moved {
                    most: 2 * others,
                    total,
                },
            )
        }
        ("broadcast", "binomial") => (floor_log + entry, once(u64::from(ceil_log)), none()),
        ("broadcast", "mapped") => (2, none(), once(1)),
        ("all-gather", "ring") => (ranks - 1 + entry, each(others), none()),
        ("all-gather", "direct") => (1 + entry, each(others), none()),
        ("all-gather", "mapped") => (2, none(), each(others)),
        ("reduce-scatter", "ring") => (ranks - 1, each(others), none()),
        ("reduce-scatter", "direct") if symmetric => (2, none(), each(others)),
        ("reduce-scatter", "direct") => (1, each(others), none()),
        ("all-to-all", "pairwise") => (ranks - 1 + entry, each(others), none()),
        ("all-to-all", "direct") => (1 + entry, each(others), none()),
        ("gather", "linear") => (1 + entry, once(1), none()),
        ("scatter", "linear") if symmetric => (2, none(), once(1)),
        ("scatter", "linear") => (1, once(others), none()),
        ("barrier", "dissemination") => (ceil_log, none(), none()),
        (collective, name) => panic!("{collective} {name} has no line in the textbook"),
    };
    Cost { steps, sent, read }
}

/// The collective of this name, with every root.
fn collectives(name: &str, ranks: u32) -> Vec<Collective> {
    let with_root = |collective: fn(u32) -> Collective| (0..ranks).map(collective).collect();
    match name {
        "all-reduce" => vec![Collective::AllReduce],
        "all-gather" => vec![Collective::AllGather],
        "reduce-scatter" => vec![Collective::ReduceScatter],
        "all-to-all" => vec![Collective::AllToAll],
        "barrier" => vec![Collective::Barrier],
        "reduce" => with_root(|root| Collective::Reduce { root }),
        "broadcast" => with_root(|root| Collective::Broadcast { root }),
        "gather" => with_root(|root| Collective::Gather { root }),
        "scatter" => with_root(|root| Collective::Scatter { root }),
        other => panic!("unknown collective {other}"),
    }
}

/// The least that the algorithm may assume about the machine.
fn mapped(algorithm: &Algorithm, memory: Memory) -> Mapped {
    match memory {
        Memory::Symmetric => Mapped::All,
        Memory::Ordinary if algorithm.requires.mapped == Reach::All => Mapped::Scratch,
        Memory::Ordinary => Mapped::None,
    }
}

fn check(algorithm: &Algorithm, request: Request) {
    let programs: Vec<Schedule> = (0..request.ranks)
        .map(|rank| (algorithm.build)(&Request { rank, ..request }))
        .collect();
    let options = VerifyOptions::mapped(mapped(algorithm, request.memory));
    // One tile speaks for all, says the verifier; up to here the reuse of slots is played nevertheless.
    let options = match request.ranks {
        ..=9 => options,
        _ => options.one_tile(),
    };
    let report = verify(&programs, &options)
        .unwrap_or_else(|error| panic!("{} {request:?}: {error}", algorithm.name));
    let expected = textbook(algorithm, request.ranks, request.memory);
    assert_eq!(
        Cost::of(&report),
        expected,
        "{} {request:?}",
        algorithm.name
    );
}

/// Which sizes of blocks the algorithm can deal with.
fn sizes(algorithm: &Algorithm) -> &'static [Sizes] {
    if algorithm.requires.per_rank_sizes {
        &[Sizes::Equal, Sizes::PerRank]
    } else {
        &[Sizes::Equal]
    }
}

fn check_all(ranks: impl Iterator<Item = u32> + Clone) {
    for algorithm in registry() {
        for ranks in ranks.clone() {
            let roots_apart = if ranks <= 9 { 1 } else { ranks as usize / 2 };
            let collectives = collectives(algorithm.collective, ranks);
            for collective in collectives.into_iter().step_by(roots_apart) {
                assert_eq!(collective_name(collective), algorithm.collective);
                for memory in [Memory::Ordinary, Memory::Symmetric] {
                    for &sizes in sizes(algorithm) {
                        let request = Request {
                            collective,
                            ranks,
                            rank: 0,
                            memory,
                            sizes,
                            topology: &Topology::flat(ranks),
                            parts: &[],
                        };
                        check(algorithm, request);
                    }
                }
            }
        }
    }
}

#[test]
fn verified_with_every_root_up_to_nine_ranks() {
    check_all(1..=9);
}

#[test]
fn verified_from_ten_to_thirty_three_ranks() {
    check_all(10..=33);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn verified_for_any_number_of_ranks_and_any_root(
        algorithm in prop::sample::select(registry()),
        ranks in 34_u32..100,
        root in any::<prop::sample::Index>(),
        memory in prop::sample::select(&[Memory::Ordinary, Memory::Symmetric]),
    ) {
        let collective = *root.get(&collectives(algorithm.collective, ranks));
        let topology = &Topology::flat(ranks);
        check(&algorithm, Request { collective, ranks, rank: 0, memory, sizes: Sizes::Equal, topology, parts: &[] });
    }
}
