//! Locks whose state is right after a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, whoever may have panicked before.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
