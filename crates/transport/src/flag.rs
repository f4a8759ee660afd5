//! Flags: words that count up, each value a signal.

use crate::sync::{AtomicU64, Ordering};

/// The value of a flag once signal `id` of tile `g` was sent.
#[inline]
pub fn flag_value(g: u64, id: u32) -> u64 {
    (g << 16) | u64::from(id + 1)
}

/// Whether a flag has reached this value. If so, everything that its sender did before is visible.
#[inline]
pub fn has_reached(flag: &AtomicU64, value: u64) -> bool {
    flag.load(Ordering::Acquire) >= value
}
