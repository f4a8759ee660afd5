//! Unfinished operations between this rank and one whose memory it does not map.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use weft_channel::{ControlMessage, ENVELOPE_BYTES, OneSidedWord};
use weft_memory::{RegisteredMemory, access};
use weft_transport::{Iovec, IovecMut, Link, LinkError, RegionKey, Submission, Ticket};

use super::operations::OperationId;
use super::serve_queue::{FRAGMENT_BYTES, FRAGMENTS_MAX, ServeQueue};

/// An entry of the send queue, which is in the order of the calls.
enum Outgoing {
    Message(Vec<u8>),
    Put {
        place: (RegionKey, u64),
        source: Iovec,
        /// Held as long as the link reads the source.
        registered: Option<Arc<RegisteredMemory>>,
        operation: OperationId,
    },
}

/// A put that the link reads.
struct SubmittedPut {
    ticket: Ticket,
    operation: OperationId,
    _registered: Option<Arc<RegisteredMemory>>,
}

/// A get with fragments that are not requested yet.
struct PendingGet {
    operation: OperationId,
    piece: u64,
    offset: u64,
    target: IovecMut,
    /// The number of bytes that were requested.
    requested: u64,
}

/// A request that the peer has not answered.
pub(super) enum PeerRequest {
    Fragment {
        operation: OperationId,
        target: IovecMut,
    },
    Value(OperationId),
    Flush(OperationId),
}

impl PeerRequest {
    pub(super) fn operation(&self) -> OperationId {
        match self {
            PeerRequest::Fragment { operation, .. }
            | PeerRequest::Value(operation)
            | PeerRequest::Flush(operation) => *operation,
        }
    }
}

/// Unfinished operations to and from one rank.
#[derive(Default)]
pub(super) struct PeerTraffic {
    outbox: VecDeque<Outgoing>,
    puts: Vec<SubmittedPut>,
    gets: VecDeque<PendingGet>,
    requests: HashMap<u64, PeerRequest>,
    /// The number of fragments of gets among the requests.
    fragments: usize,
    next: u64,
    /// Whether there were writes since the last flush.
    pub(super) unflushed: bool,
    pub(super) serve: ServeQueue,
}

impl PeerTraffic {
    /// Queues a message with a payload.
    pub(super) fn send(&mut self, group: u64, word: OneSidedWord, payload: &[u8]) {
        let mut buffer = [0; ENVELOPE_BYTES];
        let message = ControlMessage::OneSided { group, word };
        let bytes = [message.envelope(&mut buffer), payload].concat();
        self.outbox.push_back(Outgoing::Message(bytes));
    }

    /// Queues a put of memory that does not change until the operation has ended.
    pub(super) fn put(
        &mut self,
        place: (RegionKey, u64),
        (source, registered): (Iovec, Option<Arc<RegisteredMemory>>),
        operation: OperationId,
    ) {
        self.outbox.push_back(Outgoing::Put {
            place,
            source,
            registered,
            operation,
        });
    }

    /// Queues a get into memory that nothing else uses until the operation has ended.
    pub(super) fn get(&mut self, from: (u64, u64), target: IovecMut, operation: OperationId) {
        self.gets.push_back(PendingGet {
            operation,
            piece: from.0,
            offset: from.1,
            target,
            requested: 0,
        });
    }

    /// Adds a request. Returns its number.
    pub(super) fn request(&mut self, request: PeerRequest) -> u64 {
        self.next += 1;
        self.fragments += usize::from(matches!(request, PeerRequest::Fragment { .. }));
        self.requests.insert(self.next, request);
        self.next
    }

    /// Removes and returns the request of an answer; `None` if there is no such request.
    pub(super) fn answered(&mut self, id: u64) -> Option<PeerRequest> {
        let request = self.requests.remove(&id)?;
        self.fragments -= usize::from(matches!(request, PeerRequest::Fragment { .. }));
        Some(request)
    }

    /// Whether an operation needs the peer.
    pub(super) fn needs_peer(&self) -> bool {
        let put = |outgoing: &Outgoing| matches!(outgoing, Outgoing::Put { .. });
        let others = self.puts.is_empty() && self.gets.is_empty() && self.requests.is_empty();
        !others || self.outbox.iter().any(put)
    }

    /// Drops what the peer will not receive any more, as it has left.
    pub(super) fn peer_has_left(&mut self) {
        let put = |outgoing: &Outgoing| matches!(outgoing, Outgoing::Put { .. });
        self.outbox.retain(put);
        self.serve = ServeQueue::default();
    }

    /// Whether there is anything to send or to wait for.
    pub(super) fn is_busy(&self) -> bool {
        !(self.outbox.is_empty()
            && self.puts.is_empty()
            && self.gets.is_empty()
            && self.requests.is_empty())
    }

    /// Sends as much as possible. Adds operations of which a part has ended to `done`.
    pub(super) fn advance(
        &mut self,
        group: u64,
        link: &dyn Link,
        done: &mut Vec<OperationId>,
    ) -> Result<bool, LinkError> {
        let mut moved = false;
        let mut unfinished = Vec::with_capacity(self.puts.len());
        for put in self.puts.drain(..) {
            match link.completed(put.ticket)? {
                true => done.push(put.operation),
                false => unfinished.push(put),
            }
        }
        self.puts = unfinished;
        loop {
            while let Some(front) = self.outbox.front() {
                match front {
                    Outgoing::Message(bytes) => link.message(bytes)?,
                    Outgoing::Put {
                        place: (region, offset),
                        source,
                        registered,
                        operation,
                    } => match link.put(*region, *offset, &[*source], None)? {
                        Submission::Done => done.push(*operation),
                        Submission::UnderWay(ticket) => self.puts.push(SubmittedPut {
                            ticket,
                            operation: *operation,
                            _registered: registered.clone(),
                        }),
                        Submission::Full => return Ok(moved),
                    },
                }
                self.outbox.pop_front();
                moved = true;
            }
            if !self.request_fragment(group) {
                break;
            }
        }
        moved |= self.serve.advance(group, link)?;
        Ok(moved || !done.is_empty())
    }

    /// Requests the next fragment, if the limit allows. True if it did.
    fn request_fragment(&mut self, group: u64) -> bool {
        if self.fragments >= FRAGMENTS_MAX {
            return false;
        }
        let Some(get) = self.gets.front_mut() else {
            return false;
        };
        let (piece, operation) = (get.piece, get.operation);
        let offset = get.offset + get.requested;
        let bytes = (get.target.len() as u64 - get.requested).min(FRAGMENT_BYTES);
        let start = get.target.start().wrapping_add(get.requested as usize);
        get.requested += bytes;
        if get.requested == get.target.len() as u64 {
            self.gets.pop_front();
        }
        // SAFETY: it is a part of a get's target, which is kept until the get has ended.
        let target = unsafe { access::target(start, bytes) };
        let id = self.request(PeerRequest::Fragment { operation, target });
        let word = OneSidedWord::Get {
            piece,
            offset,
            bytes,
            id,
        };
        self.send(group, word, &[]);
        true
    }

    /// Drops everything: the link does not use memory of operations any more.
    pub(super) fn cancel(&mut self, link: Option<&dyn Link>) {
        for put in self.puts.drain(..) {
            if let Some(link) = link {
                link.cancel(put.ticket);
            }
        }
        *self = PeerTraffic::default();
    }
}
