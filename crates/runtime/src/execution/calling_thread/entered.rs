//! Operations of the calling-thread path.

use weft_call::Fingerprint;

use weft_channel::{LANES, lane_of};

/// The decision between schedules for symmetric and for ordinary memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EntryPhase {
    /// The ranks exchange the positions of their memory.
    Exchange,
    /// All have passed the same symmetric memory.
    Symmetric,
    /// They have not, or there was no exchange.
    Ordinary,
}

/// An operation that was called on the calling-thread path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entered {
    /// Its number among all operations of the group.
    pub(crate) sequence: u64,
    /// Its number among the inline ones.
    pub(super) number: u64,
    pub(crate) fingerprint: Fingerprint,
    /// Its number in the flight recorder.
    pub(crate) record: u64,
    /// Whether the ranks begin with an exchange of signals: about symmetric memory, or to stay in
    /// step.
    pub(super) exchanges: bool,
    pub(super) phase: EntryPhase,
    /// Whether the caller's input has been copied to where the schedule works.
    pub(super) begun: bool,
    /// The next action of the phase.
    pub(super) next: usize,
    /// Its outcome, once it has one.
    pub(crate) outcome: Option<InlineOutcome>,
}

impl Entered {
    pub(super) fn word(&self) -> u64 {
        undecided_word(self.sequence, self.fingerprint)
    }

    /// Whether it may still need a lane.
    pub(crate) fn is_undecided(&self) -> bool {
        self.phase == EntryPhase::Exchange && self.outcome.is_none()
    }
}

/// The outcome of an inline operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InlineOutcome {
    Done,
    /// Its memory is not symmetric, so it must run in its lane.
    Lane,
}

/// The word for an operation that may still need a lane: its number among all operations of the
/// group, times [`LANES`], plus the lane.
pub(super) fn undecided_word(sequence: u64, fingerprint: Fingerprint) -> u64 {
    sequence * LANES as u64 + lane_of(sequence, fingerprint.level()) as u64
}
