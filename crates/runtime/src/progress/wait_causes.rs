//! Answers of ranks that are waited for, and the ranks that wait for this one: see `wait_chain.rs`.

use std::time::{Duration, Instant};

use weft_channel::WaitCause;

use crate::execution::Operation;

/// A rank that has waited for longer than this asks the rank it waits for, and asks again.
pub(super) const QUERY_AFTER: Duration = Duration::from_secs(1);

/// The interval in which a stalled operation's rank asks, at least four times before the deadline.
pub(super) fn query_interval(operation: &Operation) -> Duration {
    QUERY_AFTER.min(operation.due.allowed / 4)
}

/// How long a rank that the operation waits for may leave a question open: less says nothing on a
/// busy host.
pub(super) fn silence_max(operation: &Operation) -> Duration {
    QUERY_AFTER.max(2 * query_interval(operation))
}

/// Those of a group.
#[derive(Default)]
pub(crate) struct WaitCauses {
    /// The last answer.
    answer: Option<Answer>,
    /// The ranks that have asked, each with the operation that it last asked about.
    pub(super) askers: Vec<(u32, u64)>,
}

struct Answer {
    from: u32,
    sequence: u64,
    cause: WaitCause,
    at: Instant,
}

impl WaitCauses {
    pub(super) fn note_asker(&mut self, asker: u32, sequence: u64) {
        self.askers.retain(|(rank, _)| *rank != asker);
        self.askers.push((asker, sequence));
    }

    /// Notes a rank's answer; whether it is another than the last one.
    pub(super) fn note(&mut self, from: u32, sequence: u64, cause: WaitCause) -> bool {
        let former = self.answer.take();
        let is_new = former.is_none_or(|former| !former.cause.is_same(&cause));
        self.answer = Some(Answer {
            from,
            sequence,
            cause,
            at: Instant::now(),
        });
        is_new
    }

    /// The answer of the rank that an operation waits for, if it still holds.
    pub(super) fn answer_of(&self, awaited: u32, operation: &Operation) -> Option<&WaitCause> {
        let answer = self.answer.as_ref()?;
        let holds = answer.from == awaited
            && answer.sequence == operation.sequence
            && answer.at >= operation.last_step
            && answer.at.elapsed() <= 2 * query_interval(operation);
        holds.then_some(&answer.cause)
    }
}
