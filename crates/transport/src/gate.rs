//! A gate that many makers of descriptors pass at a time, and no fork meanwhile.
//!
//! The word counts the makers inside, plus [`FORK`] for each fork under way.

use crate::sync::{AtomicU64, Ordering, yield_now};

const FORK: u64 = 1 << 32;

/// Lets a maker in, once no fork is under way.
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

/// A maker goes out.
pub(crate) fn leave(gate: &AtomicU64) {
    gate.fetch_sub(1, Ordering::Release);
}

/// Waits until no maker is inside, and lets none in until [`release`].
pub(crate) fn hold(gate: &AtomicU64) {
    gate.fetch_add(FORK, Ordering::Relaxed);
    while !gate.load(Ordering::Acquire).is_multiple_of(FORK) {
        yield_now();
    }
}

/// The fork is over, in the process that has forked.
pub(crate) fn release(gate: &AtomicU64) {
    gate.fetch_sub(FORK, Ordering::Release);
}
