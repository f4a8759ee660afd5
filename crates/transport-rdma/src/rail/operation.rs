//! The entries of a rail's queue, and the parts of an operation on the peer's memory.

use std::collections::VecDeque;
use std::ops::Range;

use weft_transport::{AtomicOp, RegionKey};

use crate::keys::Keys;
use crate::verbs::{LocalMemory, PeerMemory};

/// The kind of an operation on both ends' memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OperationKind {
    Write,
    Read,
    Change(AtomicOp),
}

/// An operation on the peer's memory.
#[derive(Debug)]
pub(super) struct RailOperation {
    pub(super) ticket: u64,
    pub(super) what: OperationKind,
    pub(super) region: RegionKey,
    pub(super) range: Range<u64>,
    pub(super) own: Vec<LocalMemory>,
    /// The frame that is written into the ring behind it.
    pub(super) frame: Option<Vec<u8>>,
    /// The parts that are still to be posted, once its destination is known.
    pub(super) parts: Option<VecDeque<(LocalMemory, PeerMemory)>>,
    pub(super) question: AnswerState,
    /// The last posted request; 0 before the first.
    pub(super) last_posted: u64,
}

/// The state of the question for a place without keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AnswerState {
    /// Not asked yet.
    Unasked,
    /// There is no answer yet.
    Asked,
    /// The peer has answered: the present keys are complete.
    Answered,
}

/// An entry that waits for room.
#[derive(Debug)]
pub(super) enum QueueEntry {
    Frame(Vec<u8>),
    Operation(RailOperation),
}

/// The stage of an operation. Complete ones are removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OperationStage {
    Queued,
    /// Complete once this request is.
    Posted(u64),
}

/// A place for which the link must ask the peer, as the head of a queue needs its keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Question {
    pub(crate) ticket: u64,
    pub(crate) region: RegionKey,
    pub(crate) range: Range<u64>,
}

impl RailOperation {
    /// Finds its destination on a rail. Fails if it must wait for the peer's answer; the error may
    /// hold a question that must be sent.
    pub(super) fn find(&mut self, keys: &Keys, rail: usize) -> Result<(), Option<Question>> {
        if self.parts.is_some() {
            return Ok(());
        }
        match (
            keys.parts(self.region, self.range.clone(), rail),
            self.question,
        ) {
            (Some(places), _) => self.parts = Some(matched(&self.own, &places)),
            // The grant was revoked. Nothing is written there; later entries continue.
            (None, AnswerState::Answered) => self.parts = Some(VecDeque::new()),
            (None, AnswerState::Asked) => return Err(None),
            (None, AnswerState::Unasked) => {
                self.question = AnswerState::Asked;
                return Err(Some(Question {
                    ticket: self.ticket,
                    region: self.region,
                    range: self.range.clone(),
                }));
            }
        }
        Ok(())
    }
}

/// Local and remote memory, divided at the boundaries of either.
fn matched(
    own: &[LocalMemory],
    places: &[(PeerMemory, u64)],
) -> VecDeque<(LocalMemory, PeerMemory)> {
    let mut parts = VecDeque::with_capacity(own.len().max(places.len()));
    let (mut own, mut places) = (own.iter().copied(), places.iter().copied());
    let (mut left, mut place) = (own.next(), places.next());
    while let (Some(here), Some((there, room))) = (left, place) {
        let bytes = u64::from(here.bytes).min(room);
        parts.push_back((
            LocalMemory {
                bytes: bytes as u32,
                ..here
            },
            there,
        ));
        left = match u64::from(here.bytes) - bytes {
            0 => own.next(),
            rest => Some(LocalMemory {
                address: here.address + bytes,
                bytes: rest as u32,
                ..here
            }),
        };
        place = match room - bytes {
            0 => places.next(),
            rest => Some((
                PeerMemory {
                    address: there.address + bytes,
                    ..there
                },
                rest,
            )),
        };
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(address: u64, bytes: u32) -> LocalMemory {
        LocalMemory {
            address,
            bytes,
            key: 1,
        }
    }

    fn place(address: u64) -> PeerMemory {
        PeerMemory { address, key: 2 }
    }

    #[test]
    fn memory_is_divided_at_either_boundary() {
        let pieces = [own(1000, 10), own(5000, 6)];
        let parts = matched(&pieces, &[(place(0), 4), (place(100), 12)]);
        let found: Vec<_> = (parts.iter())
            .map(|(own, peer)| (own.address, own.bytes, peer.address))
            .collect();
        assert_eq!(found, [(1000, 4, 0), (1004, 6, 100), (5000, 6, 106)]);
    }

    #[test]
    fn place_without_keys_is_asked_about_once() {
        let mut operation = RailOperation {
            ticket: 7,
            what: OperationKind::Write,
            region: RegionKey(1),
            range: 0..16,
            own: vec![own(1000, 16)],
            frame: None,
            parts: None,
            question: AnswerState::Unasked,
            last_posted: 0,
        };
        let mut keys = Keys::default();
        let question = operation.find(&keys, 0).unwrap_err().expect("a question");
        assert_eq!((question.ticket, question.range), (7, 0..16));
        assert_eq!(operation.find(&keys, 0), Err(None));
        operation.question = AnswerState::Answered;
        operation.find(&keys, 0).unwrap();
        assert_eq!(operation.parts.as_ref().map(VecDeque::len), Some(0));
        operation.parts = None;
        keys.insert(RegionKey(1), 0..16, vec![place(64)]);
        operation.find(&keys, 0).unwrap();
        assert_eq!(operation.parts.as_ref().map(VecDeque::len), Some(1));
    }
}
