//! The intermediate representation of schedules: collectives, grids, buffers, slices and steps.

use std::fmt;
use std::ops::Range;

use crate::collective::Collective;
use crate::encoding::Encoding;
pub use crate::rank::Rank;

/// Numbers the signals of one ordered pair of ranks: 0, 1, 2 ... in the sender's program order.
///
/// Counting per pair lets a transport carry a signal as one monotonic 64-bit word.
pub type SignalId = u32;

/// An exact number between 0 and 1: where a chunk begins or ends, as a share of the message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fraction {
    /// Numerator, at most the denominator.
    pub numerator: u32,
    /// Denominator, at least 1.
    pub denominator: u32,
}

impl Fraction {
    /// The element index at this share of a message of `elements` elements, rounded down.
    pub fn of(self, elements: u64) -> u64 {
        (u128::from(elements) * u128::from(self.numerator) / u128::from(self.denominator)) as u64
    }
}

/// How the message is divided into chunks. The same on every rank.
///
/// Phases that divide the message differently (into 3 and into 5, say) share one grid that has all
/// their cuts.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Grid {
    /// This many equal chunks (at least 1).
    Equal(u32),
    /// Ascending cuts from 0 to 1, both included; chunk i is between cut i and cut i + 1.
    Cuts(Vec<Fraction>),
    /// This many chunks, one per rank, whose sizes are known only when the operation is called.
    Blocks(u32),
}

impl Grid {
    /// The number of chunks.
    pub fn chunks(&self) -> u32 {
        match self {
            Grid::Equal(n) | Grid::Blocks(n) => *n,
            Grid::Cuts(cuts) => cuts.len() as u32 - 1,
        }
    }
}

/// One rank's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Buffer {
    /// The caller's source memory (never written).
    Input,
    /// The caller's destination memory.
    Output,
    /// Temporary memory of one rank. Where the transport maps memory, peers may read it, and write
    /// it once its rank has begun the tile. Chunk `base` is at its start, the following chunks
    /// behind it.
    Scratch {
        /// Which of [`Schedule::scratch`].
        entry: u32,
        /// The chunk at the start of the entry.
        base: u32,
    },
    /// Temporary memory that one peer writes and only its own rank reads. Each ordered pair of
    /// ranks has its own. Chunk `base` is at its start, the following chunks behind it.
    Receive {
        /// The only rank that writes here.
        from: Rank,
        /// Which of [`Schedule::receive`].
        entry: u32,
        /// The chunk at the start of the entry.
        base: u32,
    },
}

/// A range of chunks in a buffer of a rank.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Slice {
    /// The rank of the buffer.
    pub rank: Rank,
    /// Which buffer.
    pub buffer: Buffer,
    /// Which chunks.
    pub chunks: Range<u32>,
    /// How its elements are represented. `Input` and `Output` are always [`Encoding::Native`].
    pub encoding: Encoding,
}

/// Lets one of several ranks execute a step, so that a slow one is helped.
///
/// The step stands in the program of every rank in `by`, with the same `id`. Per tile, exactly one
/// of them executes it. The owner, `by[0]`, passes the step only when any of them has executed it;
/// the others pass it immediately, having executed it or not.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Claim {
    /// The number of this claimable step in the schedule.
    pub id: u32,
    /// The owner, then the ranks that may help. Each of them maps every slice of the step.
    pub by: Vec<Rank>,
}

/// One thing that a rank does.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// Writes `src` to every destination in one pass, converting where encodings differ.
    /// A destination in another rank's buffer is a *put*.
    Copy {
        /// Where to; same number of chunks as `src`.
        dsts: Vec<Slice>,
        /// Where from.
        src: Slice,
        /// The ranks that may execute it, if others than this one may.
        claim: Option<Claim>,
    },
    /// Combines the sources in the order given and writes the result to every destination in one
    /// pass. A destination may also be a source.
    Reduce {
        /// Where to.
        dsts: Vec<Slice>,
        /// The slices to combine, first to last.
        srcs: Vec<Slice>,
        /// Whether every contribution is now in: scale for the average, round.
        is_final: bool,
        /// The ranks that may execute it, if others than this one may.
        claim: Option<Claim>,
    },
    /// Notifies `to` that everything before it is done.
    Signal {
        /// The rank that is notified.
        to: Rank,
        /// Its number among the signals from here to there.
        id: SignalId,
    },
    /// Waits until `from` has sent signal `id` to this rank.
    Wait {
        /// The rank that signals.
        from: Rank,
        /// Its number among the signals from there to here.
        id: SignalId,
    },
}

impl Step {
    /// The slices that it writes, then those that it reads.
    pub fn slices(&self) -> impl Iterator<Item = &Slice> {
        let (written, read): (&[Slice], &[Slice]) = match self {
            Step::Copy { dsts, src, .. } => (dsts, std::slice::from_ref(src)),
            Step::Reduce { dsts, srcs, .. } => (dsts, srcs),
            Step::Signal { .. } | Step::Wait { .. } => (&[], &[]),
        };
        written.iter().chain(read)
    }
}

/// The program of one rank for one collective operation, for messages of any size.
///
/// The executor cuts every chunk into the same number of tiles and runs the steps once per tile,
/// several tiles at a time. Invariants (checked by the verifier, whose documentation explains
/// them):
/// - `collective`, `ranks`, `grid`, `scratch` and `receive` are the same on all ranks;
/// - a peer's `Input` and `Output` are touched only between its entry and its exit;
/// - a peer's `Scratch` is no longer touched once that peer's tile has ended.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Schedule {
    /// The collective.
    pub collective: Collective,
    /// The number of ranks in the group.
    pub ranks: u32,
    /// The rank of the program.
    pub rank: Rank,
    /// How the message is divided.
    pub grid: Grid,
    /// The widths, in chunks, of the entries of each rank's own temporary memory.
    pub scratch: Vec<u32>,
    /// The widths, in chunks, of the entries of the temporary memory of each ordered pair of ranks.
    pub receive: Vec<u32>,
    /// The program.
    pub steps: Vec<Step>,
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Collective::AllReduce => write!(f, "all-reduce"),
            Collective::Reduce { root } => write!(f, "reduce to {root}"),
            Collective::Broadcast { root } => write!(f, "broadcast from {root}"),
            Collective::AllGather => write!(f, "all-gather"),
            Collective::ReduceScatter => write!(f, "reduce-scatter"),
            Collective::AllToAll => write!(f, "all-to-all"),
            Collective::Gather { root } => write!(f, "gather to {root}"),
            Collective::Scatter { root } => write!(f, "scatter from {root}"),
            Collective::Barrier => write!(f, "barrier"),
        }
    }
}
