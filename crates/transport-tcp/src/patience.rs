//! The time that a call to a peer may take.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Until when to wait, and whether to go on.
#[derive(Clone, Copy)]
pub(crate) struct Patience<'a> {
    pub(crate) deadline: Instant,
    pub(crate) cancel: &'a AtomicBool,
}

impl Patience<'_> {
    /// No longer than for this time from now on.
    pub(crate) fn at_most(self, time: Duration) -> Self {
        Self {
            deadline: self.deadline.min(Instant::now() + time),
            ..self
        }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }
}
