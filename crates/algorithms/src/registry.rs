//! The table of all algorithms.

use weft_schedule::{Collective, Schedule};

use crate::{
    Request, all_gather, all_reduce, all_to_all, barrier, broadcast, gather, reduce,
    reduce_scatter, scatter,
};

/// What an algorithm needs and can do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Requirements {
    /// Every rank must be able to read every rank's `Scratch`. Symmetric memory comes with this.
    pub mapped_scratch: bool,
    /// The caller's memory must be symmetric.
    pub symmetric: bool,
    /// Blocks may have a size per rank: [`Sizes::PerRank`](crate::Sizes::PerRank).
    pub per_rank_sizes: bool,
}

impl Requirements {
    /// Runs over every transport, on any memory, with blocks of equal size.
    pub(crate) const NONE: Requirements = Requirements {
        mapped_scratch: false,
        symmetric: false,
        per_rank_sizes: false,
    };
    /// As [`Requirements::NONE`], and blocks may have a size per rank.
    pub(crate) const NONE_ANY_SIZES: Requirements = Requirements {
        per_rank_sizes: true,
        ..Requirements::NONE
    };
    /// Reads the peers' scratch memory.
    pub(crate) const MAPPED: Requirements = Requirements {
        mapped_scratch: true,
        ..Requirements::NONE
    };
}

/// One way to carry out one collective.
#[derive(Clone, Copy, Debug)]
pub struct Algorithm {
    /// Its name, unique within the collective.
    pub name: &'static str,
    /// The collective's name, as [`collective_name`] gives it.
    pub collective: &'static str,
    /// One line for people.
    pub summary: &'static str,
    /// What it needs and can do.
    pub requires: Requirements,
    /// Makes one rank's program. The request must keep the invariants of [`Request`].
    pub build: fn(&Request) -> Schedule,
}

static ALGORITHMS: &[Algorithm] = &[
    all_reduce::ring::ALGORITHM,
    all_reduce::direct::ALGORITHM,
    all_reduce::two_shot::ALGORITHM,
    all_reduce::slice_reduce::ALGORITHM,
    reduce::binomial::ALGORITHM,
    reduce::slice_reduce::ALGORITHM,
    broadcast::binomial::ALGORITHM,
    broadcast::mapped::ALGORITHM,
    all_gather::ring::ALGORITHM,
    all_gather::direct::ALGORITHM,
    all_gather::mapped::ALGORITHM,
    reduce_scatter::ring::ALGORITHM,
    reduce_scatter::direct::ALGORITHM,
    all_to_all::pairwise::ALGORITHM,
    all_to_all::direct::ALGORITHM,
    gather::linear::ALGORITHM,
    scatter::linear::ALGORITHM,
    barrier::dissemination::ALGORITHM,
];

/// All algorithms, the collective's general-purpose one first.
pub fn registry() -> &'static [Algorithm] {
    ALGORITHMS
}

/// The algorithm of this name for the collective of this name.
pub fn find(collective: &str, algorithm: &str) -> Option<&'static Algorithm> {
    ALGORITHMS
        .iter()
        .find(|candidate| candidate.collective == collective && candidate.name == algorithm)
}

/// A collective's name, whatever its root.
pub fn collective_name(collective: Collective) -> &'static str {
    match collective {
        Collective::AllReduce => "all-reduce",
        Collective::Reduce { .. } => "reduce",
        Collective::Broadcast { .. } => "broadcast",
        Collective::AllGather => "all-gather",
        Collective::ReduceScatter => "reduce-scatter",
        Collective::AllToAll => "all-to-all",
        Collective::Gather { .. } => "gather",
        Collective::Scatter { .. } => "scatter",
        Collective::Barrier => "barrier",
    }
}
