//! Turns on the calling-thread path: a lock with the count of operations that have run.
//!
//! Operations run one at a time, in the order of the calls. The thread that runs one holds the
//! turn: a calling thread from the call to its end, unless it blocks; the engine while it advances
//! one. `crates/models` checks that threads take turns, and that ranks stay in step.

use std::sync::PoisonError;

use crate::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering};

/// Counts of operations.
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

/// The word for no operation.
const NO_OPERATION: u64 = u64::MAX;

/// The turns of one group.
pub(crate) struct Turns {
    count: Mutex<OperationCount>,
    /// The most operations in a row that do not keep the ranks in step.
    loose_max: u64,
    /// The word of the operation on a calling thread that may still need a lane.
    undecided: AtomicU64,
    /// Set once no operation may begin any more.
    over: AtomicBool,
}

/// The turn, held by a thread while it runs or counts an operation.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    count: MutexGuard<'a, OperationCount>,
}

/// An operation that was counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CountedCall {
    /// Its number among the inline ones.
    pub(crate) number: u64,
    /// Whether the ranks begin with an exchange of signals: about symmetric memory, or to stay in
    /// step.
    pub(crate) exchanges: bool,
}

impl Turns {
    /// The turns of a group with `slots` slots.
    pub(crate) fn new(slots: u64) -> Self {
        Turns {
            count: Mutex::default(),
            loose_max: slots - 2,
            undecided: AtomicU64::new(NO_OPERATION),
            over: AtomicBool::new(false),
        }
    }

    /// Takes the turn for a new operation on this thread, if it is the next and the turn is free.
    pub(crate) fn try_begin(&self) -> Option<Turn<'_>> {
        let count = self.count.try_lock().ok()?;
        let free = !self.over.load(Ordering::Relaxed) && count.called == count.ended;
        free.then_some(Turn { turns: self, count })
    }

    /// Takes the turn, once it is free.
    pub(crate) fn take(&self) -> Turn<'_> {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        Turn { turns: self, count }
    }

    /// Prevents further operations on calling threads. None runs there afterwards.
    pub(crate) fn end(&self) {
        let _turn = self.take();
        self.over.store(true, Ordering::Relaxed);
    }

    /// The word of the operation on a calling thread that may still need a lane.
    pub(crate) fn undecided(&self) -> Option<u64> {
        let word = self.undecided.load(Ordering::Acquire);
        (word != NO_OPERATION).then_some(word)
    }

    /// Records that the engine has taken over the operation with this word.
    pub(crate) fn handed_over(&self, word: u64, ended: bool) {
        let mut turn = self.take();
        if self.undecided() == Some(word) {
            self.undecided.store(NO_OPERATION, Ordering::Release);
        }
        // Until now, it prevented other calling threads from entering.
        turn.count.ended += u64::from(ended);
    }

    /// Whether all operations before this one have ended.
    pub(crate) fn is_next(&self, number: u64) -> bool {
        self.take().count.ended == number
    }
}

impl Turn<'_> {
    /// Counts a call. `positions`: it exchanges positions of memory; `in_step`: its schedule keeps
    /// the ranks in step.
    pub(crate) fn count(&mut self, positions: bool, in_step: bool) -> CountedCall {
        let exchanges = positions || (!in_step && self.count.loose == self.turns.loose_max);
        self.count.loose = match exchanges || in_step {
            true => 0,
            false => self.count.loose + 1,
        };
        self.count.called += 1;
        CountedCall {
            number: self.count.called - 1,
            exchanges,
        }
    }

    /// Records that the operation with this word may still need a lane. Call it before another can
    /// be entered after it.
    pub(crate) fn note_undecided(&self, word: u64) {
        self.turns.undecided.store(word, Ordering::Release);
    }

    /// Ends the operation that holds the turn on its calling thread.
    pub(crate) fn done(mut self, exchanges: bool) {
        if exchanges {
            self.turns.undecided.store(NO_OPERATION, Ordering::Release);
        }
        self.count.ended += 1;
    }

    /// Ends the operation that holds the turn in the engine.
    pub(crate) fn ended(mut self) {
        self.count.ended += 1;
    }

    /// The number of operations that were called.
    #[cfg(test)]
    pub(crate) fn called(&self) -> u64 {
        self.count.called
    }
}
