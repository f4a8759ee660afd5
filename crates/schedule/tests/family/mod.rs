//! The programs of every registered algorithm, as more samples to mutate.

use weft_algorithms::{MemoryClass, Reach, ScheduleRequest, Selection, Sizes, Topology, family};
use weft_schedule::{Collective, Mapped, VerifyOptions};

use crate::samples::Sample;

/// Two ranks to a host, and all choices for them.
pub(crate) fn all(ranks: u32) -> Vec<Sample> {
    let hosts: Vec<u32> = (0..ranks).map(|rank| rank / 2).collect();
    let topology = Topology::hosts(&hosts);
    collectives(ranks - 1)
        .into_iter()
        .flat_map(|(name, collective)| {
            let selections = family(name, &topology);
            selections
                .into_iter()
                .map(move |selection| (collective, selection))
        })
        .flat_map(|(collective, selection)| {
            let topology = &topology;
            [MemoryClass::Ordinary, MemoryClass::Symmetric]
                .map(|memory| sample(&selection, collective, topology, memory))
        })
        .collect()
}

fn collectives(root: u32) -> [(&'static str, Collective); 9] {
    [
        ("all-reduce", Collective::AllReduce),
        ("reduce", Collective::Reduce { root }),
        ("broadcast", Collective::Broadcast { root }),
        ("all-gather", Collective::AllGather),
        ("reduce-scatter", Collective::ReduceScatter),
        ("all-to-all", Collective::AllToAll),
        ("gather", Collective::Gather { root }),
        ("scatter", Collective::Scatter { root }),
        ("barrier", Collective::Barrier),
    ]
}

fn sample(
    selection: &Selection,
    collective: Collective,
    topology: &Topology,
    memory: MemoryClass,
) -> Sample {
    let ranks = topology.ranks();
    let schedules = (0..ranks)
        .map(|rank| {
            selection.build(&ScheduleRequest {
                collective,
                ranks,
                rank,
                memory,
                sizes: Sizes::Equal,
                topology,
                parts: &[],
            })
        })
        .collect();
    let mapped = match (memory, selection.requires().mapped) {
        (MemoryClass::Symmetric, _) => Mapped::All,
        (MemoryClass::Ordinary, Reach::None) => Mapped::None,
        (MemoryClass::Ordinary, _) => Mapped::Scratch,
    };
    let apart = memory == MemoryClass::Ordinary && selection.requires().mapped < Reach::All;
    let unit = |rank| topology.unit_of(0, rank);
    Sample {
        name: format!("{collective} {} {memory:?}", selection.name()),
        schedules,
        options: VerifyOptions {
            hosts: apart.then(|| (0..ranks).map(unit).collect()),
            ..VerifyOptions::mapped(mapped)
        },
    }
}
