//! State of a suspected desync: ranks that may have made different calls.

use std::time::Instant;

use crate::Error;

/// An earlier call of another rank differed. The group pauses until that rank has found which one.
pub(crate) struct SuspectedDesync {
    pub(super) since: Instant,
    /// The error if that rank finds none, or does not answer.
    pub(super) error: Error,
}
