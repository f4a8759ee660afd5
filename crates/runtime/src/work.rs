//! The handle of an operation under way.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::Error;
use crate::engine::Engine;

/// How a wait ended, where the operation did not fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// The operation is done.
    Done,
    /// The time given to the wait is over; the operation goes on.
    NotYet,
    /// The caller's `interrupted` returned true; the operation goes on.
    Interrupted,
}

type Callback = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// What the engine and the handles of an operation share.
pub(crate) struct Completion {
    state: AtomicU8,
    /// The rank that a received message came from.
    source: AtomicU32,
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
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
            inner: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// That of an operation that is done already.
    pub(crate) fn done() -> Arc<Self> {
        Arc::new(Completion {
            state: AtomicU8::new(DONE),
            source: AtomicU32::new(u32::MAX),
            inner: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state.load(Ordering::Acquire) != RUNNING
    }

    pub(crate) fn set_source(&self, rank: u32) {
        self.source.store(rank, Ordering::Relaxed);
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

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An operation under way. Dropping the handle does not stop the operation.
#[derive(Clone)]
pub struct Work {
    pub(crate) completion: Arc<Completion>,
    pub(crate) engine: Arc<Engine>,
}

impl Work {
    /// Waits until the operation is done.
    ///
    /// The calling thread drives the operation itself where no other thread does. `interrupted` is asked about every 50 ms.
    pub fn wait(
        &self,
        timeout: Option<Duration>,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Waited, Error> {
        self.engine.check_generation()?;
        let deadline = timeout.and_then(|time| Instant::now().checked_add(time));
        let waited = self.engine.wait(&self.completion, deadline, interrupted);
        match self.completion.result() {
            Some(result) => result.map(|()| Waited::Done),
            None => Ok(waited),
        }
    }

    /// Whether the operation is over, be it done or failed.
    pub fn is_done(&self) -> bool {
        self.completion.is_over()
    }

    /// Why the operation failed, if it did.
    pub fn error(&self) -> Option<Error> {
        self.completion.result().and_then(Result::err)
    }

    /// The rank that a received message came from, once it is done.
    pub fn source(&self) -> Option<u32> {
        let rank = self.completion.source.load(Ordering::Relaxed);
        (rank != u32::MAX).then_some(rank)
    }

    /// Calls back when the operation is over; at once if it is already.
    ///
    /// Runs on whichever thread ends the operation, often the progress thread: it must be short and must not wait.
    pub fn on_done(&self, callback: Box<dyn FnOnce(Result<(), Error>) + Send>) {
        let mut inner = self.completion.lock();
        if self.completion.is_over() {
            drop(inner);
            let result = self.completion.result().unwrap_or(Ok(()));
            return callback(result);
        }
        inner.callbacks.push(callback);
    }
}
