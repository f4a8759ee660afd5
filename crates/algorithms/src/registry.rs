//! The table of all algorithms.

use weft_schedule::{Collective, Schedule};

use crate::{
    About, Cost, Inner, Request, all_gather, all_reduce, all_to_all, barrier, broadcast, gather,
    reduce, reduce_scatter, scatter,
};

/// Whose memory a rank must be able to read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reach {
    /// Only its own.
    None,
    /// The `Scratch` of the ranks in its innermost unit of the topology.
    Unit,
    /// The `Scratch` of every rank.
    All,
}

/// What is to be chosen about an algorithm: what may follow its name in parentheses.
#[derive(Clone, Copy, Debug)]
pub enum Parts {
    /// Nothing.
    None,
    /// A number of something, if at all.
    Count {
        /// Of what.
        of: &'static str,
        /// By multiples of how many ranks programs are alike, in the sense of [`Symmetry::Rotation`], if they are.
        alike: fn(&Request) -> Option<u32>,
    },
    /// A component for each level of units, innermost first, then an algorithm of the same collective for the outermost owners.
    Levels {
        /// The components for the inside of units; the first is the default.
        inner: &'static [Inner],
        /// The default for the outermost owners.
        top: &'static str,
    },
}

/// Which ranks' programs are the same but for names: another rank for each rank, other chunks, of the same share of the message, for
/// the chunks of a slice.
///
/// The order of a reduction's sources does not count, nor whether a range is split where chunk numbers wrap.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Symmetry {
    /// None in particular.
    None,
    /// Rank r's program is that of rank 0 with r added to every rank, modulo their number.
    Rotation,
    /// Where the number of ranks is a power of two: rank r's program is that of rank 0 with r xor-ed to every rank.
    Exclusive,
}

/// What an algorithm needs and can do.
#[derive(Clone, Copy, Debug)]
pub struct Requirements {
    /// Whose `Scratch` a rank reads. Symmetric memory comes with [`Reach::All`].
    pub mapped: Reach,
    /// The caller's memory must be symmetric.
    pub symmetric: bool,
    /// Blocks may have a size per rank: [`Sizes::PerRank`](crate::Sizes::PerRank).
    pub per_rank_sizes: bool,
    /// Every element's contributions are combined by one reduction in the order of ranks, whatever the topology: the canonical tree.
    pub reproducible: bool,
    /// What is to be chosen about it.
    pub parts: Parts,
}

impl Requirements {
    /// Runs over every transport, on any memory, with blocks of equal size.
    pub(crate) const NONE: Requirements = Requirements {
        mapped: Reach::None,
        symmetric: false,
        per_rank_sizes: false,
        reproducible: false,
        parts: Parts::None,
    };
    /// As [`Requirements::NONE`], and blocks may have a size per rank.
    pub(crate) const NONE_ANY_SIZES: Requirements = Requirements {
        per_rank_sizes: true,
        ..Requirements::NONE
    };
    /// Reads the peers' scratch memory.
    pub(crate) const MAPPED: Requirements = Requirements {
        mapped: Reach::All,
        ..Requirements::NONE
    };
    /// As [`Requirements::NONE`], and combines in the canonical tree.
    pub(crate) const REPRODUCIBLE: Requirements = Requirements {
        reproducible: true,
        ..Requirements::NONE
    };
    /// As [`Requirements::REPRODUCIBLE`], and blocks may have a size per rank.
    pub(crate) const REPRODUCIBLE_ANY_SIZES: Requirements = Requirements {
        per_rank_sizes: true,
        ..Requirements::REPRODUCIBLE
    };
    /// Reads the peers' scratch memory and combines in the canonical tree.
    pub(crate) const MAPPED_REPRODUCIBLE: Requirements = Requirements {
        reproducible: true,
        ..Requirements::MAPPED
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
    /// What else people are told.
    pub about: About,
    /// What it needs and can do.
    pub requires: Requirements,
    /// Which ranks' programs are alike.
    pub symmetry: Symmetry,
    /// What it costs, whichever rank the request names.
    pub cost: fn(&Request) -> Cost,
    /// Makes one rank's program. The request must keep the invariants of [`Request`].
    pub build: fn(&Request) -> Schedule,
}

static ALGORITHMS: &[Algorithm] = &[
    all_reduce::ring::ALGORITHM,
    all_reduce::direct::ALGORITHM,
    all_reduce::two_shot::ALGORITHM,
    all_reduce::slice_reduce::ALGORITHM,
    all_reduce::bidirectional_ring::ALGORITHM,
    all_reduce::recursive_doubling::ALGORITHM,
    all_reduce::halving_doubling::ALGORITHM,
    all_reduce::halving_doubling_blocks::ALGORITHM,
    all_reduce::binomial::ALGORITHM,
    all_reduce::double_tree::ALGORITHM,
    all_reduce::gather_to_root::ALGORITHM,
    all_reduce::multi_rail::ALGORITHM,
    all_reduce::leaders::ALGORITHM,
    all_reduce::torus::ALGORITHM,
    all_reduce::parameter_server::ALGORITHM,
    reduce::binomial::ALGORITHM,
    reduce::double_tree::ALGORITHM,
    reduce::direct::ALGORITHM,
    reduce::slice_reduce::ALGORITHM,
    reduce::leaders::ALGORITHM,
    broadcast::binomial::ALGORITHM,
    broadcast::double_tree::ALGORITHM,
    broadcast::scatter_all_gather::ALGORITHM,
    broadcast::mapped::ALGORITHM,
    broadcast::leaders::ALGORITHM,
    all_gather::ring::ALGORITHM,
    all_gather::doubling::ALGORITHM,
    all_gather::bruck::ALGORITHM,
    all_gather::direct::ALGORITHM,
    all_gather::mapped::ALGORITHM,
    reduce_scatter::ring::ALGORITHM,
    reduce_scatter::halving::ALGORITHM,
    reduce_scatter::direct::ALGORITHM,
    reduce_scatter::slice_reduce::ALGORITHM,
    all_to_all::pairwise::ALGORITHM,
    all_to_all::direct::ALGORITHM,
    all_to_all::bruck::ALGORITHM,
    gather::linear::ALGORITHM,
    gather::binomial::ALGORITHM,
    scatter::linear::ALGORITHM,
    scatter::binomial::ALGORITHM,
    barrier::dissemination::ALGORITHM,
    barrier::direct::ALGORITHM,
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
