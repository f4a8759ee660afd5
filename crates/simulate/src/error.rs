//! Errors of simulations.

use std::fmt;

use weft_algorithms::Refusal;
use weft_schedule::{Rank, TileLimits};

/// Why something cannot be simulated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SimulationError {
    /// A figure of the machine is invalid.
    Machine(String),
    /// The job is invalid, in itself or on this machine.
    Job(String),
    /// The machine's ranks cannot use the algorithm for this call.
    Refused(Refusal),
    /// The executor has not enough temporary memory for the smallest tile.
    TemporaryMemory {
        /// Chunks of temporary memory that a tile needs.
        chunks: u64,
        /// The receive memory of a tile for each peer, in bytes.
        receive_bytes: u64,
        /// The scratch memory of a tile, in bytes.
        scratch_bytes: u64,
        /// The limits, with as many doublings of both as the smallest tile needs.
        enough: TileLimits,
    },
    /// Simulating it would take more than is allowed.
    Work {
        /// The approximate number of steps to simulate, with the work that takes as long.
        steps: u64,
        /// Of that, how many times the rate of a flow would be computed: many where hosts talk to
        /// several others each, through which many talk.
        rates: u64,
        /// How many tiles these are.
        tiles: u64,
        /// How many steps may be simulated.
        limit: u64,
    },
    /// The programs of the ranks that would have to be simulated do not fit into memory.
    Steps {
        /// Their steps, about.
        steps: u64,
        /// How many there may be.
        limit: u64,
    },
    /// A rank waits forever: the schedule is wrong.
    Stuck {
        /// The rank.
        rank: Rank,
        /// The step that it does not get past.
        step: u32,
        /// The tile.
        tile: u64,
    },
}

impl fmt::Display for SimulationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SimulationError::Machine(what) => write!(f, "the machine cannot be simulated: {what}"),
            SimulationError::Job(what) => write!(f, "the job cannot be simulated: {what}"),
            SimulationError::Refused(refusal) => write!(f, "the algorithm {refusal}"),
            SimulationError::TemporaryMemory {
                chunks,
                receive_bytes,
                scratch_bytes,
                ..
            } => write!(
                f,
                "the job cannot be simulated: the temporary memory of {chunks} chunks does not fit into the limits of a tile ({receive_bytes} bytes from each peer, {scratch_bytes} of its own)"
            ),
            SimulationError::Work {
                steps,
                rates,
                tiles,
                limit,
            } => {
                write!(
                    f,
                    "the job is not simulated: it has about {steps} steps in {tiles} tiles"
                )?;
                if *rates > 0 {
                    write!(f, ", with {rates} changes of rates on shared links")?;
                }
                write!(
                    f,
                    ", more than the {limit} that are allowed; larger tiles or fewer ranks have fewer, and the closed form has none"
                )
            }
            SimulationError::Steps { steps, limit } => write!(
                f,
                "the job cannot be simulated: its ranks have about {steps} steps, but at most {limit} fit into \
                 memory; use the closed form, fewer ranks, or ranks of equal speed"
            ),
            SimulationError::Stuck { rank, step, tile } => write!(
                f,
                "rank {rank} waits forever at step {step} of tile {tile}: the schedule is wrong; verify it"
            ),
        }
    }
}

impl std::error::Error for SimulationError {}
