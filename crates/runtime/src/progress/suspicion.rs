//! A suspected desync of a group.

use std::time::Instant;

use crate::Error;

/// An earlier call of another rank differed. Nothing goes on until that rank has found which.
pub(crate) struct SuspectedDesync {
    pub(super) since: Instant,
    /// What is said if it does not find any, or does not answer.
    pub(super) error: Error,
}
