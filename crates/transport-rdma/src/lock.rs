//! Locks whose state is right after a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, whatever happened to the thread that had it before.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
