//! The programs of four ranks on two hosts, in full: a refactoring leaves every one unchanged.

use weft_algorithms::{Memory, Request, Sizes, Topology, registry, select};
use weft_schedule::{Collective, Schedule, print};

const RANKS: u32 = 4;

/// The collective of this name; the root, if any, is not rank 0.
fn collective(name: &str) -> Collective {
    match name {
        "all-reduce" => Collective::AllReduce,
        "reduce" => Collective::Reduce { root: 1 },
        "broadcast" => Collective::Broadcast { root: 1 },
        "all-gather" => Collective::AllGather,
        "reduce-scatter" => Collective::ReduceScatter,
        "all-to-all" => Collective::AllToAll,
        "gather" => Collective::Gather { root: 1 },
        "scatter" => Collective::Scatter { root: 1 },
        "barrier" => Collective::Barrier,
        other => panic!("unknown collective {other}"),
    }
}

#[test]
fn programs() {
    for algorithm in registry() {
        let selection = select(algorithm.collective, algorithm.name).unwrap();
        let text_in = |memory| {
            let programs: Vec<Schedule> = (0..RANKS)
                .map(|rank| {
                    selection.build(&Request {
                        collective: collective(algorithm.collective),
                        ranks: RANKS,
                        rank,
                        memory,
                        sizes: Sizes::Equal,
                        topology: &Topology::hosts(&[0, 0, 1, 1]),
                        parts: &[],
                    })
                })
                .collect();
            print(&programs)
        };
        let (ordinary, symmetric) = (text_in(Memory::Ordinary), text_in(Memory::Symmetric));
        let text = if ordinary == symmetric {
            format!("# Any memory.\n{ordinary}")
        } else {
            format!("# Ordinary memory.\n{ordinary}\n# Symmetric memory.\n{symmetric}")
        };
        let name = format!("{} {}", algorithm.collective, algorithm.name).replace([' ', '-'], "_");
        insta::assert_snapshot!(name, text);
    }
}
