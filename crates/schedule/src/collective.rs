//! Collectives: their results, and facts about them.

use crate::rank::Rank;

/// The result of the schedules of all ranks together.
///
/// Chunks are always numbered in the coordinates of the whole message, on every rank and in every
/// buffer:
///
/// | collective      | message              | `Input` of rank r | `Output` of rank r                     |
/// |-----------------|----------------------|-------------------|----------------------------------------|
/// | `AllReduce`     | one vector           | not used          | in place: own vector, then the result  |
/// | `Reduce`        | one vector           | not used          | own vector; the result at the root, elsewhere unchanged |
/// | `Broadcast`     | one vector           | not used          | at the root the vector, then everywhere |
/// | `AllGather`     | P blocks             | block r           | all blocks                             |
/// | `ReduceScatter` | P blocks             | all blocks        | block r                                |
/// | `Gather`        | P blocks             | block r           | all blocks at the root, else not used  |
/// | `Scatter`       | P blocks             | all blocks at the root, else not used | block r            |
/// | `AllToAll`      | P blocks per rank    | chunk j: for rank j | chunk i: from rank i                 |
/// | `Barrier`       | nothing              | not used          | not used                               |
///
/// "Block r" is the r-th of P equal shares of the grid: with a grid of P chunks it is chunk r.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Collective {
    /// Every rank gets the reduction of all ranks' vectors.
    AllReduce,
    /// The root gets the reduction of all ranks' vectors.
    Reduce {
        /// The rank that gets the result.
        root: Rank,
    },
    /// Every rank gets the root's vector.
    Broadcast {
        /// The rank whose vector is sent.
        root: Rank,
    },
    /// Every rank gets every rank's block.
    AllGather,
    /// Rank r gets the reduction of all ranks' block r.
    ReduceScatter,
    /// Rank j gets chunk j of every rank.
    AllToAll,
    /// The root gets every rank's block.
    Gather {
        /// The rank that gets the result.
        root: Rank,
    },
    /// Rank r gets block r of the root.
    Scatter {
        /// The rank whose blocks are sent.
        root: Rank,
    },
    /// No rank leaves before every rank has entered.
    Barrier,
}

impl Collective {
    /// The names of all collectives, by [`Collective::index`].
    pub const NAMES: [&str; 9] = [
        "all-reduce",
        "reduce",
        "broadcast",
        "all-gather",
        "reduce-scatter",
        "all-to-all",
        "gather",
        "scatter",
        "barrier",
    ];

    /// Its place in [`Collective::NAMES`], which does not depend on the root.
    #[inline]
    pub fn index(self) -> u8 {
        match self {
            Collective::AllReduce => 0,
            Collective::Reduce { .. } => 1,
            Collective::Broadcast { .. } => 2,
            Collective::AllGather => 3,
            Collective::ReduceScatter => 4,
            Collective::AllToAll => 5,
            Collective::Gather { .. } => 6,
            Collective::Scatter { .. } => 7,
            Collective::Barrier => 8,
        }
    }

    /// Its name, which does not depend on the root.
    #[inline]
    pub fn name(self) -> &'static str {
        Self::NAMES[usize::from(self.index())]
    }

    /// Whether contributions are combined.
    #[inline]
    pub fn reduces(self) -> bool {
        matches!(
            self,
            Collective::AllReduce | Collective::Reduce { .. } | Collective::ReduceScatter
        )
    }

    /// Whether schedules know `Output` only: the message is one vector.
    #[inline]
    pub fn in_place(self) -> bool {
        matches!(
            self,
            Collective::AllReduce | Collective::Reduce { .. } | Collective::Broadcast { .. }
        )
    }

    /// Whether a rank's `Input` is its own block of the message, not the whole.
    #[inline]
    pub fn input_is_block(self) -> bool {
        matches!(self, Collective::AllGather | Collective::Gather { .. })
    }

    /// Whether a rank's `Output` is its own block of the message, not the whole.
    #[inline]
    pub fn output_is_block(self) -> bool {
        matches!(self, Collective::ReduceScatter | Collective::Scatter { .. })
    }

    /// Its root, if it has one.
    #[inline]
    pub fn root(self) -> Option<Rank> {
        match self {
            Collective::Reduce { root }
            | Collective::Broadcast { root }
            | Collective::Gather { root }
            | Collective::Scatter { root } => Some(root),
            _ => None,
        }
    }

    /// The collective of this name, with this root if it has one.
    pub fn named(name: &str, root: Rank) -> Option<Collective> {
        Some(match name {
            "all-reduce" => Collective::AllReduce,
            "reduce" => Collective::Reduce { root },
            "broadcast" => Collective::Broadcast { root },
            "all-gather" => Collective::AllGather,
            "reduce-scatter" => Collective::ReduceScatter,
            "all-to-all" => Collective::AllToAll,
            "gather" => Collective::Gather { root },
            "scatter" => Collective::Scatter { root },
            "barrier" => Collective::Barrier,
            _ => return None,
        })
    }
}
