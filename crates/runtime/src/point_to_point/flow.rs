//! Flow control of messages that their receiver has not asked for: what a sender may have there,
//! and what a receiver keeps. Who sends more breaks the protocol.

use std::collections::VecDeque;

use weft_transport::LinkError;

/// Messages up to this size travel with their envelope, in bytes.
const EAGER_BYTES: u64 = 16 << 10;
/// So many bytes of such messages may lie at a peer that has not asked for them, in bytes; then
/// even short messages are offered.
const EAGER_BUDGET: u64 = 1 << 20;
/// What an envelope counts for.
const ENVELOPE_BYTES: u64 = 64;
/// So many messages may be offered to a peer that has not asked for them. Others wait for their
/// turn.
const OFFERS_MAX: usize = 1 << 16;

/// A long message as its receiver hears of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OfferedMessage {
    pub(super) tag: u64,
    pub(super) id: u64,
    pub(super) bytes: u64,
}

/// What a sender may still send to one peer.
#[derive(Default)]
pub(super) struct Allowance {
    /// The cost of all short messages so far.
    sent: u64,
    /// The cost of those that the peer has said to have taken.
    taken: u64,
    /// Offers that the peer has not answered.
    unanswered: usize,
    /// Messages that the peer has not heard of yet.
    held: VecDeque<OfferedMessage>,
}

impl Allowance {
    /// Whether a message may travel with its envelope; if so, it counts as sent. It does not
    /// overtake what is held back.
    pub(super) fn send_eagerly(&mut self, bytes: u64) -> bool {
        let there = self.sent - self.taken;
        let may = bytes <= EAGER_BYTES && there + bytes <= EAGER_BUDGET && self.held.is_empty();
        if may {
            self.sent += bytes + ENVELOPE_BYTES;
        }
        may
    }

    /// What to offer now: this message, or none yet.
    pub(super) fn offer(&mut self, message: OfferedMessage) -> Option<OfferedMessage> {
        if self.unanswered >= OFFERS_MAX {
            self.held.push_back(message);
            return None;
        }
        self.unanswered += 1;
        Some(message)
    }

    /// An offer was answered: what to offer now.
    pub(super) fn answered(&mut self) -> Option<OfferedMessage> {
        self.unanswered -= 1;
        let next = self.held.pop_front();
        self.unanswered += usize::from(next.is_some());
        next
    }

    /// The peer has taken so much of all that was sent.
    pub(super) fn taken(&mut self, taken: u64) {
        self.taken = self.taken.max(taken.min(self.sent));
    }
}

/// What one peer has sent that nobody has asked for yet.
#[derive(Default)]
pub(super) struct Unclaimed {
    bytes: u64,
    offers: usize,
    /// The cost of short messages that were asked for.
    taken: u64,
}

impl Unclaimed {
    /// A short message has come.
    pub(super) fn add_eager(&mut self, bytes: usize) {
        self.bytes += bytes as u64 + ENVELOPE_BYTES;
    }

    /// A short message was asked for.
    pub(super) fn take_eager(&mut self, bytes: usize) {
        let cost = bytes as u64 + ENVELOPE_BYTES;
        self.bytes -= cost;
        self.taken += cost;
    }

    /// An offer has come.
    pub(super) fn add_offer(&mut self) {
        self.offers += 1;
    }

    /// An offered message was asked for.
    pub(super) fn take_offer(&mut self) {
        self.offers -= 1;
    }

    /// What to tell the sender: see [`Allowance::taken`].
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// An error if there is more than a sender may have sent.
    pub(super) fn check(&self) -> Result<(), LinkError> {
        if self.bytes > EAGER_BUDGET + ENVELOPE_BYTES {
            let text =
                format!("more than {EAGER_BUDGET} bytes of messages that nobody has received");
            return Err(LinkError::Protocol(text));
        }
        if self.offers > OFFERS_MAX {
            let text =
                format!("more than {OFFERS_MAX} offers of messages that nobody has received");
            return Err(LinkError::Protocol(text));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: u64) -> OfferedMessage {
        OfferedMessage {
            tag: 3,
            id,
            bytes: 1 << 20,
        }
    }

    /// Sends messages of one size until it may not; how many that were.
    fn send_all(allowance: &mut Allowance, unclaimed: &mut Unclaimed, bytes: u64) -> u64 {
        let mut sent = 0;
        while allowance.send_eagerly(bytes) {
            unclaimed.add_eager(bytes as usize);
            unclaimed.check().unwrap();
            sent += 1;
        }
        sent
    }

    #[test]
    fn a_sender_stays_within_what_its_receiver_keeps() {
        for bytes in [0, 1, 1000, EAGER_BYTES] {
            let (mut allowance, mut unclaimed) = Default::default();
            let most = send_all(&mut allowance, &mut unclaimed, bytes);
            assert!(most * (bytes + ENVELOPE_BYTES) <= EAGER_BUDGET + EAGER_BYTES + ENVELOPE_BYTES);
            // What was taken, and nothing else, may be sent again: however often something else
            // shows that the peer receives.
            assert_eq!(send_all(&mut allowance, &mut unclaimed, bytes), 0);
            allowance.taken(unclaimed.taken());
            assert_eq!(send_all(&mut allowance, &mut unclaimed, bytes), 0);
            (0..3).for_each(|_| unclaimed.take_eager(bytes as usize));
            allowance.taken(unclaimed.taken());
            assert_eq!(send_all(&mut allowance, &mut unclaimed, bytes), 3);
            // One more than may be.
            while unclaimed.check().is_ok() {
                unclaimed.add_eager(bytes as usize);
            }
            let error = unclaimed.check().unwrap_err().to_string();
            assert!(
                error.contains("bytes of messages that nobody has received"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_peer_that_claims_to_have_taken_more_gains_nothing() {
        let (mut allowance, mut unclaimed) = Default::default();
        let most = send_all(&mut allowance, &mut unclaimed, 1000);
        allowance.taken(u64::MAX);
        assert_eq!(
            send_all(&mut allowance, &mut Unclaimed::default(), 1000),
            most
        );
        allowance.taken(0);
        assert!(!allowance.send_eagerly(1000));
    }

    #[test]
    fn offers_beyond_the_bound_wait_for_answers_and_keep_their_order() {
        let (mut allowance, mut unclaimed): (Allowance, Unclaimed) = Default::default();
        for id in 0..OFFERS_MAX as u64 {
            assert_eq!(allowance.offer(message(id)), Some(message(id)));
            unclaimed.add_offer();
        }
        unclaimed.check().unwrap();
        let late = [1, 2, 3].map(|more| message(OFFERS_MAX as u64 + more));
        for message in late {
            assert_eq!(allowance.offer(message), None);
        }
        assert!(!allowance.send_eagerly(1), "a short message overtakes");
        let answered = late.map(|_| allowance.answered());
        assert_eq!(answered, late.map(Some));
        assert_eq!(allowance.answered(), None);
        assert!(allowance.send_eagerly(1));
        unclaimed.add_offer();
        let error = unclaimed.check().unwrap_err().to_string();
        assert!(
            error.contains("offers of messages that nobody has received"),
            "{error}"
        );
        unclaimed.take_offer();
        unclaimed.check().unwrap();
    }
}
