//! Deadlines of operations.

use std::time::{Duration, Instant};

const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// When something must be over.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    /// When it must have ended.
    pub deadline: Instant,
    /// The time that it was given.
    pub allowed: Duration,
}

impl Due {
    /// From now on. Very long is as good as for ever.
    pub fn within(allowed: Duration) -> Self {
        let allowed = allowed.min(FOR_EVER);
        Due {
            deadline: Instant::now() + allowed,
            allowed,
        }
    }
}
