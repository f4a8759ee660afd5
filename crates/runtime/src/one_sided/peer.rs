//! What is under way between this rank and one whose memory it does not map.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use weft_channel::{ControlMessage, ENVELOPE_BYTES, OneSidedWord};
use weft_memory::{RegisteredMemory, access};
use weft_transport::{Iovec, IovecMut, Link, LinkError, RegionKey, Submission, Ticket};

use super::operations::OperationId;
use super::serve_queue::{FRAGMENT_BYTES, FRAGMENTS_MAX, ServeQueue};

/// What waits to be sent, in the order of the calls.
enum Outgoing {
    Message(Vec<u8>),
    Put {
        place: (RegionKey, u64),
        source: Iovec,
        /// Held as long as the link reads there.
        registered: Option<Arc<RegisteredMemory>>,
        operation: OperationId,
    },
}

/// A put that the link reads.
struct PutUnderWay {
    ticket: Ticket,
    operation: OperationId,
    _registered: Option<Arc<RegisteredMemory>>,
}

/// A get of which not all fragments were asked for.
struct Asking {
    operation: OperationId,
    piece: u64,
    offset: u64,
    target: IovecMut,
    /// The bytes that were asked for.
    asked: u64,
}

/// What an answer is for.
pub(super) enum Request {
    Fragment {
        operation: OperationId,
        target: IovecMut,
    },
    Value(OperationId),
    Flush(OperationId),
}

impl Request {
    pub(super) fn operation(&self) -> OperationId {
        match self {
            Request::Fragment { operation, .. }
            | Request::Value(operation)
            | Request::Flush(operation) => *operation,
        }
    }
}

/// What is under way to and from one rank.
#[derive(Default)]
pub(super) struct PeerTraffic {
    outbox: VecDeque<Outgoing>,
    puts: Vec<PutUnderWay>,
    asking: VecDeque<Asking>,
    requests: HashMap<u64, Request>,
    /// How many fragments of gets are among the requests.
    fragments: usize,
    next: u64,
    /// Something was written since this rank last waited for all of it to be there.
    pub(super) unflushed: bool,
    pub(super) serve: ServeQueue,
}

impl PeerTraffic {
    /// Says something, followed by bytes.
    pub(super) fn say(&mut self, group: u64, word: OneSidedWord, payload: &[u8]) {
        let mut buffer = [0; ENVELOPE_BYTES];
        let message = ControlMessage::OneSided { group, word };
        let bytes = [message.envelope(&mut buffer), payload].concat();
        self.outbox.push_back(Outgoing::Message(bytes));
    }

    /// Writes memory that stays as it is until the operation is over.
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

    /// Reads into memory that nobody else touches until the operation is over.
    pub(super) fn get(&mut self, from: (u64, u64), target: IovecMut, operation: OperationId) {
        self.asking.push_back(Asking {
            operation,
            piece: from.0,
            offset: from.1,
            target,
            asked: 0,
        });
    }

    /// The number of a new request.
    pub(super) fn request(&mut self, request: Request) -> u64 {
        self.next += 1;
        self.fragments += usize::from(matches!(request, Request::Fragment { .. }));
        self.requests.insert(self.next, request);
        self.next
    }

    /// What an answer is for; nothing if nobody has asked.
    pub(super) fn answered(&mut self, id: u64) -> Option<Request> {
        let request = self.requests.remove(&id)?;
        self.fragments -= usize::from(matches!(request, Request::Fragment { .. }));
        Some(request)
    }

    /// Whether an operation needs the peer.
    pub(super) fn needs_peer(&self) -> bool {
        let put = |outgoing: &Outgoing| matches!(outgoing, Outgoing::Put { .. });
        let others = self.puts.is_empty() && self.asking.is_empty() && self.requests.is_empty();
        !others || self.outbox.iter().any(put)
    }

    /// Forgets what nobody will take any more, as the peer has left.
    pub(super) fn peer_has_left(&mut self) {
        let put = |outgoing: &Outgoing| matches!(outgoing, Outgoing::Put { .. });
        self.outbox.retain(put);
        self.serve = ServeQueue::default();
    }

    /// Whether anything is to be done here, or waits for the peer.
    pub(super) fn is_busy(&self) -> bool {
        !(self.outbox.is_empty()
            && self.puts.is_empty()
            && self.asking.is_empty()
            && self.requests.is_empty())
    }

    /// Sends what can go. The operations of which a part is done are added to `done`.
    pub(super) fn advance(
        &mut self,
        group: u64,
        link: &dyn Link,
        done: &mut Vec<OperationId>,
    ) -> Result<bool, LinkError> {
        let mut moved = false;
        let mut under_way = Vec::with_capacity(self.puts.len());
        for put in self.puts.drain(..) {
            match link.completed(put.ticket)? {
                true => done.push(put.operation),
                false => under_way.push(put),
            }
        }
        self.puts = under_way;
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
                        Submission::UnderWay(ticket) => self.puts.push(PutUnderWay {
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
            if !self.ask(group) {
                break;
            }
        }
        moved |= self.serve.advance(group, link)?;
        Ok(moved || !done.is_empty())
    }

    /// Asks for the next fragment, if there may be one more. True if it did.
    fn ask(&mut self, group: u64) -> bool {
        if self.fragments >= FRAGMENTS_MAX {
            return false;
        }
        let Some(asking) = self.asking.front_mut() else {
            return false;
        };
        let (piece, operation) = (asking.piece, asking.operation);
        let offset = asking.offset + asking.asked;
        let bytes = (asking.target.len() as u64 - asking.asked).min(FRAGMENT_BYTES);
        let start = asking.target.start().wrapping_add(asking.asked as usize);
        asking.asked += bytes;
        if asking.asked == asking.target.len() as u64 {
            self.asking.pop_front();
        }
        // SAFETY: it is a part of a get's target, which is kept while that is under way.
        let target = unsafe { access::target(start, bytes) };
        let id = self.request(Request::Fragment { operation, target });
        let word = OneSidedWord::Get {
            piece,
            offset,
            bytes,
            id,
        };
        self.say(group, word, &[]);
        true
    }

    /// Forgets everything: the link touches no memory of operations any more.
    pub(super) fn cancel(&mut self, link: Option<&dyn Link>) {
        for put in self.puts.drain(..) {
            if let Some(link) = link {
                link.cancel(put.ticket);
            }
        }
        *self = PeerTraffic::default();
    }
}
