//! End of an operation, for threads that poll it and threads that sleep until it.

use std::sync::PoisonError;
use std::time::Duration;

use crate::sync::{AtomicU8, Condvar, Mutex, MutexGuard, Ordering};

/// The operation has not ended. Any other state is an end, whose meaning the user defines.
pub(crate) const RUNNING: u8 = 0;

/// The end of an operation, with data that belongs to it.
pub(crate) struct OperationEnd<T> {
    state: AtomicU8,
    inner: Mutex<EndState<T>>,
    changed: Condvar,
}

struct EndState<T> {
    data: T,
    /// The number of sleeping threads. While it is 0, the end needs no system call.
    parked: usize,
}

impl<T> OperationEnd<T> {
    /// The end of an operation in this state.
    pub(crate) fn new(state: u8, data: T) -> Self {
        OperationEnd {
            state: AtomicU8::new(state),
            inner: Mutex::new(EndState { data, parked: 0 }),
            changed: Condvar::new(),
        }
    }

    /// The state. A thread that sees the end also sees all writes before it.
    pub(crate) fn state(&self) -> u8 {
        self.state.load(Ordering::Acquire)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state() != RUNNING
    }

    /// Ends the operation, after a change of its data that is visible with the end. Returns `None`
    /// if it has ended before: only the first end counts.
    pub(crate) fn end<R>(&self, state: u8, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        let (result, parked) = {
            let mut inner = self.lock();
            if self.is_over() {
                return None;
            }
            let result = change(&mut inner.data);
            self.state.store(state, Ordering::Release);
            (result, inner.parked > 0)
        };
        if parked {
            self.changed.notify_all();
        }
        Some(result)
    }

    /// Reads or changes the data. The operation does not end meanwhile.
    pub(crate) fn with<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        change(&mut self.lock().data)
    }

    /// Sleeps until the operation has ended or `time` has passed. Returns immediately if `unless`
    /// is true.
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
