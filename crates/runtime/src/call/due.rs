//! Deadlines of operations.

use std::time::{Duration, Instant};

const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// When something must be over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    pub(crate) deadline: Instant,
    /// The time that it was given.
    pub(crate) allowed: Duration,
}

impl Due {
    /// From now on. Very long is as good as for ever.
    pub(crate) fn within(allowed: Duration) -> Self {
        let allowed = allowed.min(FOR_EVER);
        Due {
            deadline: Instant::now() + allowed,
            allowed,
        }
    }
}
