//! Operations that were called on the calling-thread path.

use weft_call::Fingerprint;

use weft_channel::{LANES, lane_of};

/// How far it is clear what an operation runs by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EntryPhase {
    /// The ranks tell each other where their memory lies.
    Asking,
    /// All have passed the same symmetric memory.
    Symmetric,
    /// They have not, or were not asked.
    Ordinary,
}

/// An inline operation that was called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entered {
    /// Its number among all operations of the group.
    pub(crate) sequence: u64,
    /// Its number among the inline ones.
    pub(super) number: u64,
    pub(crate) fingerprint: Fingerprint,
    /// Its number in the flight recorder.
    pub(crate) record: u64,
    /// Whether the ranks begin with a signal to each other: about symmetric memory, or to be in
    /// step.
    pub(super) asked: bool,
    pub(super) phase: EntryPhase,
    /// Whether the caller's vector is where the schedule works.
    pub(super) begun: bool,
    /// The next action of the phase.
    pub(super) next: usize,
    /// What became of it.
    pub(crate) outcome: Option<InlineOutcome>,
}

impl Entered {
    pub(super) fn word(&self) -> u64 {
        undecided_word(self.sequence, self.fingerprint)
    }

    /// Whether it may yet turn out to need a lane.
    pub(crate) fn is_undecided(&self) -> bool {
        self.phase == EntryPhase::Asking && self.outcome.is_none()
    }
}

/// How an inline operation ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InlineOutcome {
    Done,
    /// Its memory is not symmetric, and it is to run in its lane.
    Lane,
}

/// Stands for an operation that may yet turn out to need a lane: its number among all operations of
/// the group, times [`LANES`], plus the lane.
pub(super) fn undecided_word(sequence: u64, fingerprint: Fingerprint) -> u64 {
    sequence * LANES as u64 + lane_of(sequence, fingerprint.level()) as u64
}
