//! Problems that the verifier finds in schedules.

use std::fmt;

use super::StepLocation;
use crate::encoding::Encoding;
use crate::ir::{Rank, SignalId};

/// A fault of a schedule. Slices are named in text form.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Problem {
    /// The schedules do not belong together, or their common part is not valid.
    Header(String),
    /// The step is not well formed.
    Malformed(String),
    /// A slice has chunks that its buffer does not hold.
    OutOfBounds {
        /// The slice.
        slice: String,
        /// The chunks that could be named.
        held: String,
    },
    /// A slice that this rank cannot or must not read.
    Unreadable {
        /// The slice.
        slice: String,
        /// Why not.
        reason: &'static str,
    },
    /// A slice that this rank cannot or must not write.
    Unwritable {
        /// The slice.
        slice: String,
        /// Why not.
        reason: &'static str,
    },
    /// Signals to one rank are numbered 0, 1, 2 ... in program order, but this one is not.
    Misnumbered {
        /// The number that it should have.
        expected: SignalId,
    },
    /// A flag word is set while it still stands for another tile's signals.
    FlagReused {
        /// The step that set it last.
        other: StepLocation,
    },
    /// A put slice is never read, so no credit for the next put returns.
    NoCredit {
        /// The slice.
        slice: String,
    },
    /// No step waits for the signal.
    UnmatchedSignal,
    /// No step sends the awaited signal.
    UnmatchedWait,
    /// An earlier step waits for the same signal.
    DoubledWait,
    /// The ranks wait for each other.
    Deadlock {
        /// The waiting ranks, each for the next, the last for the first.
        cycle: Vec<StepLocation>,
    },
    /// A slice is read that was not written.
    Unwritten {
        /// The slice.
        slice: String,
    },
    /// A slice is read that was written with another base or encoding, so it is elsewhere.
    Elsewhere {
        /// The slice.
        slice: String,
        /// The base it was written with.
        base: u32,
        /// The encoding it was written with.
        encoding: Encoding,
    },
    /// Nothing orders this access after another one to the same chunk.
    Race {
        /// The slice.
        slice: String,
        /// Whether this access is a write.
        write: bool,
        /// The other access.
        other: StepLocation,
        /// Whether the other access is a write.
        other_write: bool,
    },
    /// The reader waited for no signal that the writer sent behind its put; one that arrived
    /// through a third rank does not count where memory is not mapped.
    Undelivered {
        /// The slice.
        slice: String,
        /// The put.
        put: StepLocation,
    },
    /// A peer's memory is touched though nothing shows that the peer has entered the operation.
    BeforeEntry {
        /// The slice.
        slice: String,
    },
    /// A peer's temporary memory is written though the peer may still be in an earlier tile with
    /// the same slot.
    BeforeTile {
        /// The slice.
        slice: String,
    },
    /// A peer's memory is touched though the peer may have left the operation, or ended the tile.
    AfterExit {
        /// The buffer.
        buffer: String,
    },
    /// A computed value is wrong.
    Value(ValueProblem),
}

/// A fault of a computed value.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ValueProblem {
    /// One contribution would be in twice.
    Doubled {
        /// The rank of the contribution.
        contributor: Rank,
    },
    /// A contribution is not in.
    Missing {
        /// The rank of the contribution.
        contributor: Rank,
    },
    /// A source is final already, and is reduced again.
    AlreadyFinal {
        /// The slice.
        slice: String,
    },
    /// The result was not made by a reduction marked final.
    Unfinished,
    /// The result was never written.
    NoResult,
    /// The result is something else.
    WrongResult {
        /// The expression found.
        found: String,
        /// The right value.
        expected: String,
    },
    /// The result is another expression than on the first rank.
    Differs {
        /// The expression found.
        found: String,
        /// The rank it is compared with.
        first: Rank,
        /// The expression there.
        expected: String,
    },
    /// The result depends on the rank that claims a step.
    DependsOnClaim,
    /// A rank leaves the barrier though another may not have entered.
    LeavesEarly {
        /// The other rank.
        other: Rank,
    },
    /// A block whose size only two ranks know passes through a third.
    UnknownSize {
        /// The rank that sends it.
        from: Rank,
        /// The rank that it is for.
        to: Rank,
    },
}

impl From<ValueProblem> for Problem {
    fn from(problem: ValueProblem) -> Self {
        Problem::Value(problem)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Header(message) | Problem::Malformed(message) => f.write_str(message),
            Problem::OutOfBounds { slice, held } => {
                write!(f, "{slice} is out of bounds: {held}")
            }
            Problem::Unreadable { slice, reason } => write!(f, "{slice} cannot be read: {reason}"),
            Problem::Unwritable { slice, reason } => {
                write!(f, "{slice} cannot be written: {reason}")
            }
            Problem::Misnumbered { expected } => {
                write!(
                    f,
                    "signals are numbered in program order, so this is #{expected}"
                )
            }
            Problem::FlagReused { other } => write!(
                f,
                "sets the flag word of its slot, but nothing orders that after the signal at {other}"
            ),
            Problem::NoCredit { slice } => write!(
                f,
                "puts {slice}, but its rank reads nothing that lands there from this one, so it grants no credit for the next tile"
            ),
            Problem::UnmatchedSignal => f.write_str("no step waits for this signal"),
            Problem::UnmatchedWait => f.write_str("no step sends this signal"),
            Problem::DoubledWait => f.write_str("an earlier step waits for the same signal"),
            Problem::Deadlock { cycle } => deadlock(f, cycle),
            Problem::Unwritten { slice } => {
                write!(f, "reads {slice}, which nothing has written before")
            }
            Problem::Elsewhere {
                slice,
                base,
                encoding,
            } => write!(
                f,
                "reads {slice}, which was written with base {base} as {}",
                encoding.name()
            ),
            Problem::Race {
                slice,
                write,
                other,
                other_write,
            } => write!(
                f,
                "{} {slice}, but nothing orders that after the {} at {other}",
                if *write { "writes" } else { "reads" },
                if *other_write { "write" } else { "read" },
            ),
            Problem::Undelivered { slice, put } => write!(
                f,
                "reads {slice} without having waited for a signal that rank {} sent behind its put at step {}",
                put.rank, put.step
            ),
            Problem::BeforeEntry { slice } => write!(
                f,
                "touches {slice} though nothing shows that its rank has entered the operation"
            ),
            Problem::BeforeTile { slice } => write!(
                f,
                "writes {slice} though nothing shows that its rank has begun this tile"
            ),
            Problem::AfterExit { buffer } => write!(
                f,
                "touches {buffer}, but nothing orders that before its rank's end of the tile"
            ),
            Problem::Value(problem) => problem.fmt(f),
        }
    }
}

impl fmt::Display for ValueProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueProblem::Doubled { contributor } => {
                write!(
                    f,
                    "the contribution of rank {contributor} would be in twice"
                )
            }
            ValueProblem::Missing { contributor } => {
                write!(f, "the contribution of rank {contributor} is missing")
            }
            ValueProblem::AlreadyFinal { slice } => {
                write!(f, "reduces {slice}, which is final already")
            }
            ValueProblem::Unfinished => {
                f.write_str("the result was not made by a reduction marked final")
            }
            ValueProblem::NoResult => f.write_str("the result was never written"),
            ValueProblem::WrongResult { found, expected } => {
                write!(f, "the result is {found}, not {expected}")
            }
            ValueProblem::Differs {
                found,
                first,
                expected,
            } => write!(f, "the result is {found}, but rank {first} has {expected}"),
            ValueProblem::DependsOnClaim => {
                f.write_str("the result depends on which rank claims a step")
            }
            ValueProblem::LeavesEarly { other } => {
                write!(
                    f,
                    "leaves the barrier though rank {other} may not have entered"
                )
            }
            ValueProblem::UnknownSize { from, to } => write!(
                f,
                "only ranks {from} and {to} know the size of the block from rank {from} to rank {to}"
            ),
        }
    }
}

fn deadlock(f: &mut fmt::Formatter<'_>, cycle: &[StepLocation]) -> fmt::Result {
    f.write_str("deadlock")?;
    for (index, place) in cycle.iter().enumerate() {
        let next = cycle[(index + 1) % cycle.len()];
        let between = if index == 0 { ": " } else { "; " };
        write!(f, "{between}{place} waits for rank {}", next.rank)?;
    }
    Ok(())
}
