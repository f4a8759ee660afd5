//! Places in an execution, and the executors of claimable steps.

use std::collections::HashMap;
use std::fmt;

use crate::ir::Rank;

/// A step that a rank executes in a tile. The first step of a program is step 0. Tiles are counted
/// over all operations that are executed, see [`VerifyOptions`](super::VerifyOptions).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StepLocation {
    /// The rank of the program.
    pub rank: Rank,
    /// Which tile.
    pub tile: u32,
    /// Which step.
    pub step: u32,
}

/// One rank's run through its program, for one tile.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct TileRun {
    pub(super) rank: Rank,
    /// Counted over all operations.
    pub(super) tile: u32,
}

/// Which rank executes which claimable step.
pub(super) type ClaimExecutors = HashMap<u32, Rank>;

impl fmt::Display for StepLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StepLocation { rank, tile, step } = self;
        write!(f, "rank {rank}, tile {tile}, step {step}")
    }
}
