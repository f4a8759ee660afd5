//! Credit: every put is read, so that the next one may follow.

use std::collections::BTreeSet;

use super::lane::destinations;
use super::verification::Verification;
use super::{Problem, VerifyError};
use crate::ir::{Buffer, Rank, Schedule, Slice, Step};

/// Checks that every put gets its credit back: a rank grants it to the ranks whose data it reads.
pub(super) fn check(verification: &Verification<'_>) -> Result<(), VerifyError> {
    let sources: Vec<BTreeSet<Rank>> = verification.schedules.iter().map(receive_sources).collect();
    for schedule in verification.schedules {
        for (index, step) in schedule.steps.iter().enumerate() {
            let unread = |dst: &&Slice| {
                matches!(dst.buffer, Buffer::Receive { .. })
                    && !sources[dst.rank as usize].contains(&schedule.rank)
            };
            if let Some(dst) = destinations(step).iter().find(unread) {
                let problem = Problem::NoCredit {
                    slice: dst.to_string(),
                };
                return Err(VerifyError::at(schedule, index, problem).chunk(dst.chunks.start));
            }
        }
    }
    Ok(())
}

fn receive_sources(schedule: &Schedule) -> BTreeSet<Rank> {
    let srcs = schedule.steps.iter().flat_map(|step| match step {
        Step::Copy { src, .. } => std::slice::from_ref(src),
        Step::Reduce { srcs, .. } => srcs,
        Step::Signal { .. } | Step::Wait { .. } => &[],
    });
    srcs.filter_map(|src| match src.buffer {
        Buffer::Receive { from, .. } => Some(from),
        _ => None,
    })
    .collect()
}
