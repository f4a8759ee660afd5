//! Atomics and locks of the protocols that `crates/models` checks: here the standard library's,
//! there loom's.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
