//! What can be wrong.

use std::fmt;

use weft_schedule::Rank;

/// Why something cannot be simulated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// A figure of the machine makes no sense.
    Machine(String),
    /// The job makes no sense, or not on this machine.
    Job(String),
    /// A rank waits for ever: the schedule is wrong.
    Stuck {
        /// The rank.
        rank: Rank,
        /// The step that it does not get past.
        step: u32,
        /// The tile.
        tile: u64,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Machine(what) => write!(f, "the machine cannot be simulated: {what}"),
            Error::Job(what) => write!(f, "the job cannot be simulated: {what}"),
            Error::Stuck { rank, step, tile } => write!(
                f,
                "rank {rank} waits for ever at step {step} of tile {tile}: the schedule is wrong; verify it"
            ),
        }
    }
}

impl std::error::Error for Error {}
