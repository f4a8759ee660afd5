//! The atomics and locks of the protocols that `crates/models` checks. Here they are the standard
//! library's; there the same files are compiled with loom's.

pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
