//! The state that the checks of one verification share.

use super::lane::VerifierLane;
use super::options::VerifyOptions;
use super::shape::CommonShape;
use crate::ir::Schedule;

/// Everything that the checks look at.
pub(super) struct Verification<'a> {
    pub(super) schedules: &'a [Schedule],
    pub(super) options: &'a VerifyOptions,
    pub(super) shape: CommonShape,
    pub(super) lane: VerifierLane,
}
