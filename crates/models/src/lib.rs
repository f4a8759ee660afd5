//! Loom models of the runtime's protocols, over every interleaving and every value that the memory
//! model allows a load to see.
//!
//! The protocols are the runtime's own files, compiled here with loom's atomics and locks instead
//! of the standard library's (`sync`). The model supplies what a protocol works on: a state behind
//! a lock, slots of memory, links. Under loom no sleep has a time limit, so a missed wake shows as
//! a deadlock, and a read before the write as a data race. Run them with `make test-loom`; without
//! `--cfg loom` this crate is empty.
#![cfg(all(test, loom))]

mod driving;
mod in_step;
mod kernel;
mod links;
mod protocols;
mod turns;

/// Loom's atomics and locks, in place of those of the standard library.
pub(crate) mod sync {
    pub(crate) use loom::sync::atomic::{
        AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence,
    };
    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
}

/// Explores the interleavings of a body with a limited number of preemptions. The limits suffice
/// for every bug that the models were tested with; without a limit they take hours.
fn model(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(body);
}
