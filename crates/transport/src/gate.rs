//! A gate that admits many makers of descriptors at a time, but none during a fork.
//!
//! The word counts the makers inside, plus [`FORK`] for each fork under way.

use crate::sync::{AtomicU64, Ordering, yield_now};

const FORK: u64 = 1 << 32;

/// Admits a maker, once no fork is under way.
pub(crate) fn enter(gate: &AtomicU64) {
    let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
    loop {
        let found = gate.load(Ordering::Relaxed);
        let free = found < FORK;
        if free
            && gate
                .compare_exchange(found, found + 1, success, failure)
                .is_ok()
        {
            return;
        }
        yield_now();
    }
}

/// A maker leaves.
pub(crate) fn leave(gate: &AtomicU64) {
    gate.fetch_sub(1, Ordering::Release);
}

/// Waits until no maker is inside, and admits none until [`release`].
pub(crate) fn hold(gate: &AtomicU64) {
    gate.fetch_add(FORK, Ordering::Relaxed);
    while !gate.load(Ordering::Acquire).is_multiple_of(FORK) {
        yield_now();
    }
}

/// Ends a fork, in the process that has forked.
pub(crate) fn release(gate: &AtomicU64) {
    gate.fetch_sub(FORK, Ordering::Release);
}
