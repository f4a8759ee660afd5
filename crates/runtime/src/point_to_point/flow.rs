//! Flow control of messages for which no receive is posted: the limits of a sender, and their check
//! by the receiver. A sender that exceeds them violates the protocol.

use std::collections::VecDeque;

use weft_transport::LinkError;

/// Messages up to this size in bytes are eager: they are sent with their envelope.
const EAGER_BYTES: u64 = 16 << 10;
/// The most bytes of eager messages at a peer that has posted no receives for them. Beyond it, even
/// short messages are offered.
const EAGER_BUDGET: u64 = 1 << 20;
/// The cost of an envelope, in bytes.
const ENVELOPE_BYTES: u64 = 64;
/// The most messages that are offered to a peer without an answer. Later ones wait.
const OFFERS_MAX: usize = 1 << 16;

/// A long message that is offered to its receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OfferedMessage {
    pub(super) tag: u64,
    pub(super) id: u64,
    pub(super) bytes: u64,
}

/// A sender's allowance for one peer.
#[derive(Default)]
pub(super) struct Allowance {
    /// The cost of all eager messages so far.
    sent: u64,
    /// The cost of those that the peer has reported as taken.
    taken: u64,
    /// Offers that the peer has not answered.
    unanswered: usize,
    /// Messages that are not offered to the peer yet.
    held: VecDeque<OfferedMessage>,
}

impl Allowance {
    /// Whether a message may be sent eagerly; if so, it counts as sent. It does not overtake
    /// messages that are held back.
    pub(super) fn send_eagerly(&mut self, bytes: u64) -> bool {
        let there = self.sent - self.taken;
        let may = bytes <= EAGER_BYTES && there + bytes <= EAGER_BUDGET && self.held.is_empty();
        if may {
            self.sent += bytes + ENVELOPE_BYTES;
        }
        may
    }

    /// Offers a message. Returns it if it is to be offered now.
    pub(super) fn offer(&mut self, message: OfferedMessage) -> Option<OfferedMessage> {
        if self.unanswered >= OFFERS_MAX {
            self.held.push_back(message);
            return None;
        }
        self.unanswered += 1;
        Some(message)
    }

    /// Records an answer to an offer. Returns the next message to offer.
    pub(super) fn answered(&mut self) -> Option<OfferedMessage> {
        self.unanswered -= 1;
        let next = self.held.pop_front();
        self.unanswered += usize::from(next.is_some());
        next
    }

    /// Records that the peer has taken `taken` bytes of all that were sent.
    pub(super) fn taken(&mut self, taken: u64) {
        self.taken = self.taken.max(taken.min(self.sent));
    }
}

/// A receiver's count of one peer's messages for which no receive is posted.
#[derive(Default)]
pub(super) struct Unclaimed {
    bytes: u64,
    offers: usize,
    /// The cost of eager messages that were received.
    taken: u64,
}

impl Unclaimed {
    /// Counts an eager message that has arrived.
    pub(super) fn add_eager(&mut self, bytes: usize) {
        self.bytes += bytes as u64 + ENVELOPE_BYTES;
    }

    /// Counts an eager message that is received.
    pub(super) fn take_eager(&mut self, bytes: usize) {
        let cost = bytes as u64 + ENVELOPE_BYTES;
        self.bytes -= cost;
        self.taken += cost;
    }

    /// Counts an offer that has arrived.
    pub(super) fn add_offer(&mut self) {
        self.offers += 1;
    }

    /// Counts an offer that is accepted.
    pub(super) fn take_offer(&mut self) {
        self.offers -= 1;
    }

    /// The count to report to the sender: see [`Allowance::taken`].
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns an error if the sender has exceeded its limits.
    pub(super) fn check(&self) -> Result<(), LinkError> {
        if self.bytes > EAGER_BUDGET + ENVELOPE_BYTES {
            let text =
                format!("more than {EAGER_BUDGET} bytes of messages without a matching receive");
            return Err(LinkError::Protocol(text));
        }
        if self.offers > OFFERS_MAX {
            let text =
                format!("more than {OFFERS_MAX} offers of messages without a matching receive");
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

    /// Sends messages of one size up to the limit. Returns their number.
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
    fn sender_stays_within_its_receivers_limit() {
        for bytes in [0, 1, 1000, EAGER_BYTES] {
            let (mut allowance, mut unclaimed) = Default::default();
            let most = send_all(&mut allowance, &mut unclaimed, bytes);
            assert!(most * (bytes + ENVELOPE_BYTES) <= EAGER_BUDGET + EAGER_BYTES + ENVELOPE_BYTES);
            // Only bytes that are reported as taken may be sent again.
            assert_eq!(send_all(&mut allowance, &mut unclaimed, bytes), 0);
            allowance.taken(unclaimed.taken());
            assert_eq!(send_all(&mut allowance, &mut unclaimed, bytes), 0);
            (0..3).for_each(|_| unclaimed.take_eager(bytes as usize));
            allowance.taken(unclaimed.taken());
            assert_eq!(send_all(&mut allowance, &mut unclaimed, bytes), 3);
            // One more than allowed.
            while unclaimed.check().is_ok() {
                unclaimed.add_eager(bytes as usize);
            }
            let error = unclaimed.check().unwrap_err().to_string();
            assert!(
                error.contains("bytes of messages without a matching receive"),
                "{error}"
            );
        }
    }

    #[test]
    fn excessive_taken_count_does_not_raise_the_limit() {
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
    fn offers_beyond_the_limit_wait_in_order() {
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
            error.contains("offers of messages without a matching receive"),
            "{error}"
        );
        unclaimed.take_offer();
        unclaimed.check().unwrap();
    }
}
