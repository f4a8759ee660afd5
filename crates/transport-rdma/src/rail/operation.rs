//! What waits in a rail's queue, and what an operation on the peer's memory is made of.

use std::collections::VecDeque;
use std::ops::Range;

use weft_transport::{AtomicOp, RegionKey};

use crate::keys::Keys;
use crate::verbs::{OwnMemory, PeerMemory};

/// What an operation does with memory of both ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Write,
    Read,
    Change(AtomicOp),
}

/// An operation on memory of the peer's.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) ticket: u64,
    pub(super) what: Action,
    pub(super) region: RegionKey,
    pub(super) range: Range<u64>,
    pub(super) own: Vec<OwnMemory>,
    /// What goes into the ring behind it.
    pub(super) frame: Option<Vec<u8>>,
    /// Once it is known where it goes: what is still to be posted.
    pub(super) parts: Option<VecDeque<(OwnMemory, PeerMemory)>>,
    pub(super) question: Stand,
    /// The last of its requests that is posted; 0 before the first.
    pub(super) last_posted: u64,
}

/// How far it is known what the peer says of a place that there are no keys for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stand {
    /// Nobody has asked.
    Unasked,
    /// There is no answer yet.
    Asked,
    /// The peer has answered: the keys that there are now are all.
    Answered,
}

/// What waits for room.
#[derive(Debug)]
pub(super) enum Queued {
    Frame(Vec<u8>),
    Operation(Operation),
}

/// How an operation is doing. Complete ones are forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Queued,
    /// Over once this request is.
    Posted(u64),
}

/// What the head of a queue waits for that only the link can get.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Question {
    pub(crate) ticket: u64,
    pub(crate) region: RegionKey,
    pub(crate) range: Range<u64>,
}

impl Operation {
    /// Finds out where it goes over a rail. None if it must wait for the peer's answer; it may be
    /// that somebody must ask.
    pub(super) fn find(&mut self, keys: &Keys, rail: usize) -> Result<(), Option<Question>> {
        if self.parts.is_some() {
            return Ok(());
        }
        match (
            keys.parts(self.region, self.range.clone(), rail),
            self.question,
        ) {
            (Some(places), _) => self.parts = Some(matched(&self.own, &places)),
            // The place was taken back. Nothing is done there; what is behind it goes on.
            (None, Stand::Answered) => self.parts = Some(VecDeque::new()),
            (None, Stand::Asked) => return Err(None),
            (None, Stand::Unasked) => {
                self.question = Stand::Asked;
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

/// Own memory and the peer's, cut where either is.
fn matched(own: &[OwnMemory], places: &[(PeerMemory, u64)]) -> VecDeque<(OwnMemory, PeerMemory)> {
    let mut parts = VecDeque::with_capacity(own.len().max(places.len()));
    let (mut own, mut places) = (own.iter().copied(), places.iter().copied());
    let (mut left, mut place) = (own.next(), places.next());
    while let (Some(here), Some((there, room))) = (left, place) {
        let bytes = u64::from(here.bytes).min(room);
        parts.push_back((
            OwnMemory {
                bytes: bytes as u32,
                ..here
            },
            there,
        ));
        left = match u64::from(here.bytes) - bytes {
            0 => own.next(),
            rest => Some(OwnMemory {
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

    fn own(address: u64, bytes: u32) -> OwnMemory {
        OwnMemory {
            address,
            bytes,
            key: 1,
        }
    }

    fn place(address: u64) -> PeerMemory {
        PeerMemory { address, key: 2 }
    }

    #[test]
    fn memory_is_cut_where_either_side_is() {
        let pieces = [own(1000, 10), own(5000, 6)];
        let parts = matched(&pieces, &[(place(0), 4), (place(100), 12)]);
        let found: Vec<_> = (parts.iter())
            .map(|(own, peer)| (own.address, own.bytes, peer.address))
            .collect();
        assert_eq!(found, [(1000, 4, 0), (1004, 6, 100), (5000, 6, 106)]);
    }

    #[test]
    fn a_place_without_keys_is_asked_about_once_and_then_given_up() {
        let mut operation = Operation {
            ticket: 7,
            what: Action::Write,
            region: RegionKey(1),
            range: 0..16,
            own: vec![own(1000, 16)],
            frame: None,
            parts: None,
            question: Stand::Unasked,
            last_posted: 0,
        };
        let mut keys = Keys::default();
        let question = operation.find(&keys, 0).unwrap_err().expect("a question");
        assert_eq!((question.ticket, question.range), (7, 0..16));
        assert_eq!(operation.find(&keys, 0), Err(None));
        operation.question = Stand::Answered;
        operation.find(&keys, 0).unwrap();
        assert_eq!(operation.parts.as_ref().map(VecDeque::len), Some(0));
        operation.parts = None;
        keys.insert(RegionKey(1), 0..16, vec![place(64)]);
        operation.find(&keys, 0).unwrap();
        assert_eq!(operation.parts.as_ref().map(VecDeque::len), Some(1));
    }
}
