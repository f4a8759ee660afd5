//! Helpers shared by the tests of the whole family of algorithms.

#![allow(dead_code, reason = "not every test needs everything")]

use weft_algorithms::{
    Algorithm, MemoryClass, Parts, Reach, ScheduleRequest, Sizes, Topology, registry,
};
use weft_schedule::{Collective, Grid, Mapped, Rank, Schedule, Share, Step, VerifyOptions};

/// The algorithms that have no parts.
pub(crate) fn flat() -> impl Iterator<Item = &'static Algorithm> {
    let flat = |algorithm: &&Algorithm| matches!(algorithm.requires.parts, Parts::None);
    registry().filter(flat)
}

/// The collective of this name, with every root.
pub(crate) fn collectives(name: &str, ranks: u32) -> Vec<Collective> {
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

/// A request for blocks of equal size.
pub(crate) fn request(
    collective: Collective,
    memory: MemoryClass,
    topology: &Topology,
) -> ScheduleRequest<'_> {
    ScheduleRequest {
        collective,
        ranks: topology.ranks(),
        rank: 0,
        memory,
        sizes: Sizes::Equal,
        topology,
        parts: &[],
    }
}

/// The programs of all ranks.
pub(crate) fn programs(algorithm: &Algorithm, request: ScheduleRequest) -> Vec<Schedule> {
    let of = |rank| (algorithm.build)(&ScheduleRequest { rank, ..request });
    (0..request.ranks).map(of).collect()
}

/// How to verify with the least that the algorithm may assume about the machine.
pub(crate) fn options(algorithm: &Algorithm, request: ScheduleRequest) -> VerifyOptions {
    let mapped = match request.memory {
        MemoryClass::Symmetric => Mapped::All,
        MemoryClass::Ordinary if algorithm.requires.mapped == Reach::All => Mapped::Scratch,
        MemoryClass::Ordinary => Mapped::None,
    };
    let options = VerifyOptions::mapped(mapped);
    // One tile speaks for all, says the verifier; up to here the reuse of slots is executed
    // nevertheless.
    match request.ranks {
        ..=9 => options,
        _ => options.one_tile(),
    }
}

/// A number of chunks as a share of the message.
pub(crate) fn share(chunks: u64, grid: &Grid) -> Share {
    Share::new(chunks, u64::from(grid.chunks()))
}

/// The work of one rank, in chunks.
#[derive(Clone, Default)]
pub(crate) struct RankWork {
    /// Written to peers.
    pub(crate) sent: u64,
    /// Written by peers.
    pub(crate) received: u64,
    /// Read in peers' memory.
    pub(crate) read: u64,
    /// Combined: all sources.
    pub(crate) reduced: u64,
    /// Copied from own memory to own memory.
    pub(crate) copied: u64,
}

/// The work of every rank, and the chunks that pass between each two.
pub(crate) fn work(programs: &[Schedule]) -> (Vec<RankWork>, Vec<(Rank, Rank, u64)>) {
    let mut work = vec![RankWork::default(); programs.len()];
    let mut moved = Vec::new();
    for Schedule { rank, steps, .. } in programs {
        let rank = *rank;
        for step in steps {
            let (dsts, srcs, reduces) = match step {
                Step::Copy { dsts, src, .. } => (dsts, std::slice::from_ref(src), false),
                Step::Reduce { dsts, srcs, .. } => (dsts, srcs.as_slice(), true),
                Step::Signal { .. } | Step::Wait { .. } => continue,
            };
            for src in srcs {
                let chunks = src.chunks.len() as u64;
                let own = &mut work[rank as usize];
                own.reduced += if reduces { chunks } else { 0 };
                if src.rank != rank {
                    own.read += chunks;
                    moved.push((src.rank, rank, chunks));
                }
            }
            for dst in dsts {
                let chunks = dst.chunks.len() as u64;
                if dst.rank != rank {
                    work[rank as usize].sent += chunks;
                    work[dst.rank as usize].received += chunks;
                    moved.push((rank, dst.rank, chunks));
                } else if !reduces && srcs[0].rank == rank {
                    work[rank as usize].copied += chunks;
                }
            }
        }
    }
    (work, moved)
}
