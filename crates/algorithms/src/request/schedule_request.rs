//! The request for a schedule: collective, rank, memory class, block sizes, topology and parts.

use weft_schedule::{Collective, Grid, Rank};

use super::{MemoryClass, Part, Topology};

/// Whether the blocks of the message are of equal size.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Sizes {
    /// The message is divided evenly.
    Equal,
    /// Each rank's block has a size of its own, known when the operation is called (the "v"
    /// collectives).
    PerRank,
}

/// The parameters of a schedule.
///
/// Invariants: `rank` and the root, if any, are below `ranks`; `collective` is the one that the
/// algorithm is registered for; `sizes` is [`Sizes::Equal`] unless the algorithm supports per-rank
/// sizes; `topology` is one of `ranks` ranks; `parts` are those of the algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScheduleRequest<'a> {
    /// The collective to perform.
    pub collective: Collective,
    /// The number of ranks in the group.
    pub ranks: u32,
    /// The rank whose program is requested.
    pub rank: Rank,
    /// The memory of the caller's buffers.
    pub memory: MemoryClass,
    /// Whether blocks are of equal size.
    pub sizes: Sizes,
    /// Which ranks are close to each other.
    pub topology: &'a Topology,
    /// The choices made where the algorithm leaves any: see [`Selection`](crate::Selection).
    pub parts: &'a [Part],
}

impl ScheduleRequest<'_> {
    /// The root of a rooted collective.
    ///
    /// # Panics
    /// If the collective has no root, against the invariant that an algorithm is called only for
    /// its own collective.
    pub(crate) fn root(&self) -> Rank {
        let root = self.collective.root();
        root.unwrap_or_else(|| panic!("{} has no root", self.collective))
    }

    /// One chunk per rank.
    pub(crate) fn blocks(&self) -> Grid {
        match self.sizes {
            Sizes::Equal => Grid::Equal(self.ranks),
            Sizes::PerRank => Grid::Blocks(self.ranks),
        }
    }
}
