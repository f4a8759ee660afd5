//! The state of a broken group whose operations go on. See [Note: Failures are ordered] in
//! `breaking.rs`.

use std::time::Instant;

use weft_call::Finished;

use crate::Error;

/// What of a broken group goes on.
#[derive(Default)]
pub(super) struct Remainder {
    /// The error as it was reported to the other ranks, and the rank that saw it.
    pub(super) report: Option<(Error, Option<u32>)>,
    /// Operations from this one on fail.
    pub(super) limit: u64,
    /// When the group broke.
    pub(super) since: Option<Instant>,
    /// What has failed and is not reported yet.
    pub(super) held: Finished,
    /// Whether this rank goes on with nothing.
    pub(super) aborted: bool,
    /// Whether others may write into this rank's symmetric memory without harm.
    pub(super) private: bool,
}
