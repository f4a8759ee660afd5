//! The end of an operation, for threads that look whether it has come and threads that sleep until
//! it does.

use std::sync::PoisonError;
use std::time::Duration;

use crate::sync::{AtomicU8, Condvar, Mutex, MutexGuard, Ordering};

/// The operation has not ended. How one has is the user's: any other number.
pub(crate) const RUNNING: u8 = 0;

/// How an operation has ended, once it has, and what goes with that.
pub(crate) struct OperationEnd<T> {
    state: AtomicU8,
    inner: Mutex<EndState<T>>,
    changed: Condvar,
}

struct EndState<T> {
    kept: T,
    /// Threads that wait to be told: without any, telling would be a system call for nothing.
    parked: usize,
}

impl<T> OperationEnd<T> {
    /// Of an operation in this state.
    pub(crate) fn new(state: u8, kept: T) -> Self {
        OperationEnd {
            state: AtomicU8::new(state),
            inner: Mutex::new(EndState { kept, parked: 0 }),
            changed: Condvar::new(),
        }
    }

    /// What came before the end is visible to who has seen it.
    pub(crate) fn state(&self) -> u8 {
        self.state.load(Ordering::Acquire)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state() != RUNNING
    }

    /// Ends the operation, and changes what goes with it before anybody can see that. Nothing if it
    /// has ended before: only the first end counts.
    pub(crate) fn end<R>(&self, state: u8, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        let (result, parked) = {
            let mut inner = self.lock();
            if self.is_over() {
                return None;
            }
            let result = change(&mut inner.kept);
            self.state.store(state, Ordering::Release);
            (result, inner.parked > 0)
        };
        if parked {
            self.changed.notify_all();
        }
        Some(result)
    }

    /// Looks at what goes with the operation, or changes it. It does not end meanwhile.
    pub(crate) fn with<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        change(&mut self.lock().kept)
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

    fn lock(&self) -> MutexGuard<'_, EndState<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
