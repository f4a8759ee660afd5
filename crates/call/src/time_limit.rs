//! Deadlines of operations.

use std::time::{Duration, Instant};

const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The deadline of an operation.
#[derive(Clone, Copy, Debug)]
pub struct TimeLimit {
    /// The time by which it must have ended.
    pub deadline: Instant,
    /// The timeout that the deadline came from, for error messages.
    pub allowed: Duration,
}

impl TimeLimit {
    /// A deadline `allowed` from now. Durations above 100 years are shortened.
    pub fn within(allowed: Duration) -> Self {
        let allowed = allowed.min(LONGEST);
        TimeLimit {
            deadline: Instant::now() + allowed,
            allowed,
        }
    }
}
