//! Turns on the calling-thread path: whose it is, what has run, and what the ranks owe each other.
//!
//! Operations run one at a time, in the order of the calls. Whoever runs one holds the turn: a
//! calling thread from its call to its end, unless it gets stuck; the engine while it takes one as
//! far as it goes. `crates/models` explores how threads take turns, and how ranks stay in step.

use std::sync::PoisonError;

use crate::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering};

/// Which operations have run.
#[derive(Default)]
struct OperationCount {
    /// The number of inline operations that were called.
    called: u64,
    /// The number of those that have ended.
    ended: u64,
    /// The number of those called since the ranks were last kept in step. See
    /// [Note: Ranks in step].
    loose: u64,
}

/// Stands for no operation.
const NOBODY: u64 = u64::MAX;

/// The turns of one group.
pub(crate) struct Turns {
    count: Mutex<OperationCount>,
    /// So many operations in a row need not keep the ranks in step.
    loose_max: u64,
    /// The operation on a calling thread that may yet turn out to need a lane, as a word.
    undecided: AtomicU64,
    /// No operation begins any more.
    over: AtomicBool,
}

/// Held by who runs an operation, or counts one.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    count: MutexGuard<'a, OperationCount>,
}

/// An operation that was counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CountedCall {
    /// Its number among the inline ones.
    pub(crate) number: u64,
    /// Whether the ranks begin with a signal to each other: about symmetric memory, or to be in
    /// step.
    pub(crate) asked: bool,
}

impl Turns {
    /// Of a group whose operations use so many slots by turns.
    pub(crate) fn new(slots: u64) -> Self {
        Turns {
            count: Mutex::default(),
            loose_max: slots - 2,
            undecided: AtomicU64::new(NOBODY),
            over: AtomicBool::new(false),
        }
    }

    /// The turn for a new operation on this thread, if nothing is in its way.
    pub(crate) fn try_begin(&self) -> Option<Turn<'_>> {
        let count = self.count.try_lock().ok()?;
        let free = !self.over.load(Ordering::Relaxed) && count.called == count.ended;
        free.then_some(Turn { turns: self, count })
    }

    /// The turn, once whoever has it lets go of it.
    pub(crate) fn take(&self) -> Turn<'_> {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        Turn { turns: self, count }
    }

    /// Lets no operation begin on a calling thread any more. None is on its way there afterwards.
    pub(crate) fn end(&self) {
        let _turn = self.take();
        self.over.store(true, Ordering::Relaxed);
    }

    /// The word of the operation on a calling thread that may yet turn out to need a lane.
    pub(crate) fn undecided(&self) -> Option<u64> {
        let word = self.undecided.load(Ordering::Acquire);
        (word != NOBODY).then_some(word)
    }

    /// Takes note that the engine has the operation with this word.
    pub(crate) fn handed_over(&self, word: u64, ended: bool) {
        let mut turn = self.take();
        if self.undecided() == Some(word) {
            self.undecided.store(NOBODY, Ordering::Release);
        }
        // Until now it kept other calling threads from entering behind it.
        turn.count.ended += u64::from(ended);
    }

    /// Whether all operations before this one have ended.
    pub(crate) fn is_next(&self, number: u64) -> bool {
        self.take().count.ended == number
    }
}

impl Turn<'_> {
    /// Counts a call, which asks about symmetric memory or not, and whose schedule keeps the ranks
    /// in step or not.
    pub(crate) fn count(&mut self, asks: bool, in_step: bool) -> CountedCall {
        let asked = asks || (!in_step && self.count.loose == self.turns.loose_max);
        self.count.loose = match asked || in_step {
            true => 0,
            false => self.count.loose + 1,
        };
        self.count.called += 1;
        CountedCall {
            number: self.count.called - 1,
            asked,
        }
    }

    /// The operation with this word may yet turn out to need a lane. Said before any can be entered
    /// behind it.
    pub(crate) fn is_undecided(&self, word: u64) {
        self.turns.undecided.store(word, Ordering::Release);
    }

    /// The operation that has the turn has ended on its calling thread.
    pub(crate) fn done(mut self, asked: bool) {
        if asked {
            self.turns.undecided.store(NOBODY, Ordering::Release);
        }
        self.count.ended += 1;
    }

    /// The engine has ended the operation that has the turn.
    pub(crate) fn ended(mut self) {
        self.count.ended += 1;
    }

    /// The number of operations that were called.
    #[cfg(test)]
    pub(crate) fn called(&self) -> u64 {
        self.count.called
    }
}
