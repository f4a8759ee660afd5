//! Snapshots of the full programs of four ranks on two hosts, as a check that refactoring leaves
//! them unchanged.

use weft_algorithms::{MemoryClass, ScheduleRequest, Sizes, Topology, registry, select};
use weft_schedule::{Collective, Schedule, print};

const RANKS: u32 = 4;
/// Not rank 0.
const ROOT: u32 = 1;

#[test]
fn programs() {
    for algorithm in registry() {
        let selection = select(algorithm.collective, algorithm.name).unwrap();
        let text_in = |memory| {
            let programs: Vec<Schedule> = (0..RANKS)
                .map(|rank| {
                    selection.build(&ScheduleRequest {
                        collective: Collective::named(algorithm.collective, ROOT).unwrap(),
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
        let (ordinary, symmetric) = (
            text_in(MemoryClass::Ordinary),
            text_in(MemoryClass::Symmetric),
        );
        let text = if ordinary == symmetric {
            format!("# Any memory.\n{ordinary}")
        } else {
            format!("# Ordinary memory.\n{ordinary}\n# Symmetric memory.\n{symmetric}")
        };
        let name = format!("{} {}", algorithm.collective, algorithm.name).replace([' ', '-'], "_");
        insta::assert_snapshot!(name, text);
    }
}
