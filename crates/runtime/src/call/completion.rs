//! Completion of an operation, shared by the engine and the handles of the operation.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::Error;
use crate::flight::Recorded;

/// Operations that have ended, and how.
pub(crate) type Finished = Vec<(Arc<Completion>, Result<(), Error>)>;

type Callback = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// What the engine and the handles of an operation share.
pub(crate) struct Completion {
    state: AtomicU8,
    /// The rank that a received message came from.
    source: AtomicU32,
    /// In the flight recorder; not set for what is not recorded.
    record: OnceLock<Recorded>,
    inner: Mutex<CompletionState>,
    changed: Condvar,
}

#[derive(Default)]
struct CompletionState {
    error: Option<Error>,
    callbacks: Vec<Callback>,
    /// Threads that wait to be told: without any, telling would be a system call for nothing.
    parked: usize,
}

const RUNNING: u8 = 0;
const DONE: u8 = 1;
const FAILED: u8 = 2;

impl Completion {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Completion {
            state: AtomicU8::new(RUNNING),
            source: AtomicU32::new(u32::MAX),
            record: OnceLock::new(),
            inner: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// That of an operation that is done already.
    pub(crate) fn done() -> Arc<Self> {
        Arc::new(Completion {
            state: AtomicU8::new(DONE),
            source: AtomicU32::new(u32::MAX),
            record: OnceLock::new(),
            inner: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state.load(Ordering::Acquire) != RUNNING
    }

    pub(crate) fn set_source(&self, rank: u32) {
        self.source.store(rank, Ordering::Relaxed);
        if let Some(record) = self.record.get() {
            record.matched(rank);
        }
    }

    /// Makes it end this record as well. The first record counts.
    pub(crate) fn set_record(&self, record: Recorded) {
        let _ = self.record.set(record);
    }

    /// The operation begins; `plan`: by which plan, or 0 if that is known.
    pub(crate) fn begins(&self, plan: u64) {
        if let Some(record) = self.record.get() {
            record.begin(plan);
        }
    }

    /// Ends the operation. Only the first end counts.
    pub(crate) fn finish(&self, result: Result<(), Error>) {
        let (callbacks, parked) = {
            let mut inner = self.lock();
            if self.is_over() {
                return;
            }
            let state = if result.is_ok() { DONE } else { FAILED };
            inner.error = result.clone().err();
            if let Some(record) = self.record.get() {
                record.end(result.is_err());
            }
            self.state.store(state, Ordering::Release);
            (std::mem::take(&mut inner.callbacks), inner.parked > 0)
        };
        if parked {
            self.changed.notify_all();
        }
        for callback in callbacks {
            callback(result.clone());
        }
    }

    /// How it has ended, if it has.
    pub(crate) fn result(&self) -> Option<Result<(), Error>> {
        match self.state.load(Ordering::Acquire) {
            RUNNING => None,
            DONE => Some(Ok(())),
            _ => Some(Err(self
                .lock()
                .error
                .clone()
                .unwrap_or_else(Error::cancelled))),
        }
    }

    /// Sleeps until the operation is over or the time is, unless there is a reason not to.
    pub(crate) fn park(&self, time: Duration, unless: impl Fn() -> bool) {
        let mut inner = self.lock();
        if !self.is_over() && !unless() {
            inner.parked += 1;
            let waited = self.changed.wait_timeout(inner, time);
            waited.unwrap_or_else(PoisonError::into_inner).0.parked -= 1;
        }
    }

    /// The rank that a received message came from, once it is known.
    pub(crate) fn source(&self) -> Option<u32> {
        let rank = self.source.load(Ordering::Relaxed);
        (rank != u32::MAX).then_some(rank)
    }

    /// Calls back when the operation is over; immediately if it is already.
    pub(crate) fn on_done(&self, callback: Callback) {
        let mut inner = self.lock();
        if self.is_over() {
            drop(inner);
            return callback(self.result().unwrap_or(Ok(())));
        }
        inner.callbacks.push(callback);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, CompletionState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion")
            .field("over", &self.is_over())
            .finish()
    }
}
