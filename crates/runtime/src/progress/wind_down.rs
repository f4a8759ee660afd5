//! State of a broken group that completes its last operations. See [Note: Failures are ordered] in
//! `breaking.rs`.

use std::time::Instant;

use weft_call::Finished;

use crate::Error;

/// The progress of a broken group towards its end.
#[derive(Default)]
pub(super) struct WindDown {
    /// The error as reported to the other ranks, and the rank that detected it.
    pub(super) report: Option<(Error, Option<u32>)>,
    /// The first operation that fails.
    pub(super) limit: u64,
    /// When the group broke.
    pub(super) since: Option<Instant>,
    /// Failed operations that are not reported to their callers yet.
    pub(super) held: Finished,
    /// Whether all incomplete operations of this rank fail.
    pub(super) aborted: bool,
    /// Whether this rank's symmetric memory is private, so that writes of others do no harm.
    pub(super) private: bool,
}
