//! Completion of an operation, shared by the engine and the operation's handles.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use weft_flight::Recorded;

use super::ending::{OperationEnd, RUNNING};
use crate::Error;

/// Operations that have ended, with their results.
pub type Finished = Vec<(Arc<Completion>, Result<(), Error>)>;

type Callback = Box<dyn FnOnce(Result<(), Error>) + Send>;
type Count = Box<dyn FnOnce() + Send>;

/// The state that the engine and the handles of an operation share.
pub struct Completion {
    ending: OperationEnd<EndCallbacks>,
    /// The rank that a received message came from.
    source: AtomicU32,
    /// The flight recorder's record, if there is one.
    record: OnceLock<Recorded>,
}

/// The error of an ended operation, and the callbacks for its end.
#[derive(Default)]
struct EndCallbacks {
    error: Option<Error>,
    count: Option<Count>,
    callbacks: Vec<Callback>,
}

const DONE: u8 = 1;
const FAILED: u8 = 2;

impl Completion {
    /// A completion of an operation that has not ended.
    pub fn new() -> Arc<Self> {
        Self::in_state(RUNNING)
    }

    /// A completion of an operation that has succeeded already.
    pub fn done() -> Arc<Self> {
        Self::in_state(DONE)
    }

    fn in_state(state: u8) -> Arc<Self> {
        Arc::new(Completion {
            ending: OperationEnd::new(state, EndCallbacks::default()),
            source: AtomicU32::new(u32::MAX),
            record: OnceLock::new(),
        })
    }

    /// Whether the operation has ended.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.ending.is_over()
    }

    /// Sets the rank that a message came from.
    pub fn set_source(&self, rank: u32) {
        self.source.store(rank, Ordering::Relaxed);
        if let Some(record) = self.record.get() {
            record.matched(rank);
        }
    }

    /// Sets the flight record that the completion also ends. Only the first counts.
    pub fn set_record(&self, record: Recorded) {
        let _ = self.record.set(record);
    }

    /// Records that the operation begins; `plan`: the plan that it runs by, or 0 if already
    /// recorded.
    pub fn begins(&self, plan: u64) {
        if let Some(record) = self.record.get() {
            record.begin(plan);
        }
    }

    /// Ends the operation. Only the first end counts.
    pub fn finish(&self, result: Result<(), Error>) {
        let state = if result.is_ok() { DONE } else { FAILED };
        let callbacks = self.ending.end(state, |notice| {
            notice.error = result.clone().err();
            if let Some(count) = notice.count.take() {
                count();
            }
            if let Some(record) = self.record.get() {
                record.end(result.is_err());
            }
            std::mem::take(&mut notice.callbacks)
        });
        for callback in callbacks.into_iter().flatten() {
            callback(result.clone());
        }
    }

    /// The result, if the operation has ended.
    pub fn result(&self) -> Option<Result<(), Error>> {
        match self.ending.state() {
            RUNNING => None,
            DONE => Some(Ok(())),
            _ => {
                let error = self.ending.with(|notice| notice.error.clone());
                Some(Err(error.unwrap_or_else(Error::cancelled)))
            }
        }
    }

    /// Sleeps until the operation has ended or `time` has passed. Returns immediately if `unless`
    /// is true.
    pub fn park(&self, time: Duration, unless: impl Fn() -> bool) {
        self.ending.park(time, unless);
    }

    /// The rank that a received message came from, once it is known.
    pub fn source(&self) -> Option<u32> {
        let rank = self.source.load(Ordering::Relaxed);
        (rank != u32::MAX).then_some(rank)
    }

    /// Calls `count` when the operation ends, before its end is visible; immediately if it has
    /// ended. `count` may change counters, but nothing of this operation.
    pub fn count_with(&self, count: Count) {
        self.ending.with(|notice| match self.is_over() {
            true => count(),
            false => notice.count = Some(count),
        });
    }

    /// Calls back when the operation is over; immediately if it is already.
    pub fn on_done(&self, callback: Callback) {
        let over = self.ending.with(|notice| match self.is_over() {
            true => Some(callback),
            false => {
                notice.callbacks.push(callback);
                None
            }
        });
        if let Some(callback) = over {
            callback(self.result().unwrap_or(Ok(())));
        }
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion")
            .field("over", &self.is_over())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn counted(completion: &Arc<Completion>) -> Arc<AtomicBool> {
        let (counted, ended) = (Arc::new(AtomicBool::new(false)), completion.clone());
        let seen = counted.clone();
        completion.count_with(Box::new(move || {
            seen.store(!ended.is_over(), Ordering::Relaxed);
        }));
        counted
    }

    #[test]
    fn operation_is_counted_before_its_end_is_visible() {
        let completion = Completion::new();
        let counted_before_the_end = counted(&completion);
        assert!(!counted_before_the_end.load(Ordering::Relaxed));
        completion.finish(Ok(()));
        assert!(counted_before_the_end.load(Ordering::Relaxed));
    }

    #[test]
    fn ended_operation_is_counted_immediately() {
        let completion = Completion::done();
        let count = Arc::new(AtomicU32::new(0));
        let counter = count.clone();
        completion.count_with(Box::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        }));
        completion.finish(Ok(()));
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}
