//! Questions to peers whether their processes run, and which have no answer. See `silence.rs`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use weft_transport::EndpointId;

/// A peer is silent that has not answered for this long, or for as long as its rank is waited for,
/// if that is less. On a busy host a progress thread may have to wait for a core.
const SILENT: Duration = Duration::from_secs(2);

/// The last question to each peer that was asked.
#[derive(Default)]
pub(super) struct Questions {
    last: HashMap<EndpointId, Question>,
}

struct Question {
    asked: Instant,
    is_answered: bool,
}

impl Questions {
    /// Notes that a peer is asked now, unless it was within `interval`, or has yet to answer.
    pub(super) fn note(&mut self, peer: EndpointId, interval: Duration, now: Instant) -> bool {
        let waits = |last: &Question| !last.is_answered || now - last.asked < interval;
        let asks = !self.last.get(&peer).is_some_and(waits);
        if asks {
            let is_answered = false;
            let asked = now;
            self.last.insert(peer, Question { asked, is_answered });
        }
        asks
    }

    /// Notes that a peer's process has sent something.
    pub(super) fn note_answer(&mut self, peer: EndpointId) {
        if let Some(question) = self.last.get_mut(&peer) {
            question.is_answered = true;
        }
    }

    /// Whether a peer that is waited for during `patience` has not answered for too long.
    pub(super) fn is_silent(&self, peer: EndpointId, patience: Duration) -> bool {
        let silent =
            |last: &Question| !last.is_answered && last.asked.elapsed() >= patience.min(SILENT);
        self.last.get(&peer).is_some_and(silent)
    }

    /// Forgets a peer with the end of its link: the question or the answer may be lost.
    pub(super) fn forget(&mut self, peer: EndpointId) {
        self.last.remove(&peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_peer_that_leaves_a_question_open_is_silent() {
        let (peer, zero) = (EndpointId(1), Duration::ZERO);
        let mut questions = Questions::default();
        assert!(!questions.is_silent(peer, zero), "it was not asked");
        let now = Instant::now();
        assert!(questions.note(peer, zero, now));
        assert!(questions.is_silent(peer, zero));
        assert!(!questions.is_silent(peer, Duration::from_secs(60)));
        assert!(!questions.note(peer, zero, now), "the question is open");
        questions.note_answer(peer);
        assert!(!questions.is_silent(peer, zero));
        assert!(!questions.note(peer, Duration::from_secs(60), now));
        assert!(questions.note(peer, zero, now));
        questions.forget(peer);
        assert!(!questions.is_silent(peer, zero));
    }
}
