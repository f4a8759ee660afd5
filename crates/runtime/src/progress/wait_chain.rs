//! The end of a chain of waits: a rank that waits for another rank often does so because that one
//! waits for a third.
//!
//! A rank that has waited for long asks the rank it waits for ([`ControlMessage::Query`]). That one
//! answers with the cause of its own wait, as it knows it, or that it has not called yet. It also
//! remembers who asked, and sends them what it learns later. So the name of the rank that all wait
//! for travels along the chain at once, and an error at a deadline names it.
//!
//! All ranks execute tiles in the same order, so that waits form no cycle that lasts. Answers that
//! are old by then might: each counts the ranks it has passed, and more than there are is too many.

use weft_channel::{ControlMessage, WaitCause};

use super::group_state::GroupState;
use super::questions::Questions;
use super::wait_causes::silence_max;
use crate::execution::{Blocked, Operation};

impl GroupState {
    /// Answers a rank that waits for this one in an operation: why that is so.
    pub(super) fn explain_wait(&mut self, asker: u32, sequence: u64, questions: &Questions) {
        self.wait_causes.note_asker(asker, sequence);
        self.send_cause(asker, sequence, questions);
    }

    /// Notes a rank's answer, and passes it on if it is new.
    pub(super) fn on_wait_cause(
        &mut self,
        from: u32,
        sequence: u64,
        cause: WaitCause,
        questions: &Questions,
    ) {
        let asked = self.first_blocked(u64::MAX);
        let asked = asked.is_some_and(|(operation, blocked)| {
            operation.sequence == sequence && blocked.rank() == from
        });
        let is_possible = cause.rank < self.size() && cause.rank != self.connections.rank;
        if !asked || !is_possible || cause.passed >= self.size() {
            return;
        }
        if self.wait_causes.note(from, sequence, cause) {
            for (asker, sequence) in &self.wait_causes.askers {
                self.send_cause(*asker, *sequence, questions);
            }
        }
    }

    /// Whether the rank that all wait for has given its reason, or does not answer. On a busy host
    /// an operation may have got so far only just before its deadline, and then some time is left
    /// for the answer.
    pub(super) fn is_explained(&self, questions: &Questions) -> bool {
        let Some((operation, blocked)) = self.first_blocked(u64::MAX) else {
            return true;
        };
        let answer = self.wait_causes.answer_of(blocked.rank(), operation);
        answer.is_some_and(|cause| cause.is_own) || self.is_silent(operation, *blocked, questions)
    }

    /// Whether the process of the rank that an operation waits for does not answer.
    fn is_silent(&self, operation: &Operation, blocked: Blocked, questions: &Questions) -> bool {
        let peer = self.connections.endpoint_of(blocked.rank());
        questions.is_silent(peer, silence_max(operation))
    }

    /// The rank that an operation waits for, and the reason, for the error of a missed deadline.
    pub(super) fn awaited(&self, questions: &Questions) -> Option<String> {
        let (operation, blocked) = self.first_blocked(u64::MAX)?;
        let direct = self.describe(blocked.rank());
        let Some(cause) = self.wait_causes.answer_of(blocked.rank(), operation) else {
            let reason = self.reason(operation, *blocked, questions);
            return Some(format!("{direct}, {reason}"));
        };
        if cause.rank == blocked.rank() {
            return Some(format!("{direct}, {}", cause.reason));
        }
        let last = self.describe(cause.rank);
        Some(format!("{last}, {}, by way of {direct}", cause.reason))
    }

    /// Why this rank waits for another one, and whether that one's process is silent.
    fn reason(&self, operation: &Operation, blocked: Blocked, questions: &Questions) -> String {
        match self.is_silent(operation, blocked, questions) {
            true => format!(
                "{blocked}, and whose process does not answer: it is stopped, or its host cannot be \
                 reached"
            ),
            false => blocked.to_string(),
        }
    }

    fn send_cause(&self, asker: u32, sequence: u64, questions: &Questions) {
        if let Some(cause) = self.cause(sequence, questions) {
            let answer = ControlMessage::Waits {
                group: self.id,
                sequence,
                cause,
            };
            self.send_to(asker, &answer);
        }
    }

    /// Why an operation does not end here; `None` if this rank does not know, or is not behind.
    fn cause(&self, sequence: u64, questions: &Questions) -> Option<WaitCause> {
        let Some((operation, blocked)) = self.first_blocked(sequence) else {
            let called = self.executor.order().issued() > sequence;
            return (!called).then(|| WaitCause {
                rank: self.connections.rank,
                reason: "which has not made this call".into(),
                is_own: true,
                passed: 0,
            });
        };
        let known = self.wait_causes.answer_of(blocked.rank(), operation);
        let own = || WaitCause {
            rank: blocked.rank(),
            reason: self.reason(operation, *blocked, questions),
            is_own: false,
            passed: 0,
        };
        Some(known.map_or_else(own, WaitCause::passed_on))
    }

    /// The first operation up to this one that is blocked.
    fn first_blocked(&self, sequence: u64) -> Option<(&Operation, &Blocked)> {
        let operations = self.executor.operations.iter();
        let mut such = operations.filter(|operation| operation.sequence <= sequence);
        such.find_map(|operation| Some((operation, operation.blocked()?)))
    }
}
