//! State of a group's one-sided operations in the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use weft_call::{Completion, Finished};
use weft_channel::{CellUpdate, Connections, OneSidedWord};
use weft_memory::{Pieces, RegisteredMemory, access};
use weft_transport::{Iovec, IovecMut, LinkError, Segment};

use super::cell::{Compare, cell_of};
use super::operations::{OperationDescription, OperationId, Operations};
use super::peer::{PeerRequest, PeerTraffic};
use super::serve::serve;
use super::serve_queue::{FRAGMENT_BYTES, violation};
use crate::Error;

/// Puts up to this size in bytes are sent in a message, since a link copies them anyway.
const MESSAGE_PUT_BYTES: u64 = 8 << 10;

/// A condition on a signal.
#[derive(Clone, Debug)]
pub(crate) struct SignalWait {
    /// This rank's part of the piece that the signal is in.
    pub(crate) part: Arc<Segment>,
    /// The signal's offset in it.
    pub(crate) offset: u64,
    pub(crate) compare: Compare,
    pub(crate) value: u64,
}

impl SignalWait {
    /// Whether the condition holds.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        let signal = cell_of(&self.part, self.offset);
        signal.is_some_and(|cell| self.compare.holds(cell.load(Ordering::Acquire), self.value))
    }
}

/// A put to a rank whose memory is not mapped.
pub(crate) struct RemotePut {
    pub(crate) piece: u64,
    pub(crate) offset: u64,
    pub(crate) source: Iovec,
    /// Whether it is memory of a device, which only the link can read.
    pub(crate) of_device: bool,
    pub(crate) update: Option<CellUpdate>,
}

/// A group's one-sided operations that need the engine.
pub(crate) struct OneSided {
    group: u64,
    rank: u32,
    operations: Operations,
    waits: Vec<(OperationId, SignalWait)>,
    peers: Vec<PeerTraffic>,
    /// Set once the group is broken or closed, for callers without the engine's lock.
    over: Arc<AtomicBool>,
}

impl OneSided {
    pub(crate) fn new(group: u64, rank: u32, ranks: u32) -> Self {
        OneSided {
            group,
            rank,
            operations: Operations::default(),
            waits: Vec::new(),
            peers: (0..ranks).map(|_| PeerTraffic::default()).collect(),
            over: Arc::default(),
        }
    }

    /// The flag that is set once no operation may begin any more.
    pub(crate) fn over(&self) -> Arc<AtomicBool> {
        self.over.clone()
    }

    /// Waits for a signal.
    pub(crate) fn wait(
        &mut self,
        wait: SignalWait,
        described: OperationDescription,
    ) -> Arc<Completion> {
        let (id, completion) = self.operations.begin(described, 1, None);
        self.waits.push((id, wait));
        completion
    }

    /// Writes to a rank. The operation ends once the source may change. Returns `None`, and writes
    /// nothing, if the source is memory of a device that the link cannot read.
    pub(crate) fn put(
        &mut self,
        (connections, pieces): (&Connections, &Pieces),
        rank: u32,
        put: RemotePut,
        described: OperationDescription,
    ) -> Option<Arc<Completion>> {
        let (bytes, group) = (put.source.len() as u64, self.group);
        let region = pieces.region(put.piece, rank);
        let long = bytes > MESSAGE_PUT_BYTES || put.of_device;
        let readable = || self.readable(connections, pieces, rank, &put);
        let direct = region.filter(|_| long).zip(long.then(readable).flatten());
        if put.of_device && direct.is_none() {
            return None;
        }
        let peer = &mut self.peers[rank as usize];
        peer.unflushed = true;
        let RemotePut {
            piece,
            offset,
            source,
            update,
            ..
        } = put;
        let Some((region, (readable, registered))) = direct else {
            connections.count_staged(if long { bytes } else { 0 });
            for at in (0..bytes.max(1)).step_by(FRAGMENT_BYTES as usize) {
                let len = FRAGMENT_BYTES.min(bytes - at);
                let word = OneSidedWord::Put {
                    piece,
                    offset: offset + at,
                    update: update.filter(|_| at + len == bytes),
                };
                let start = source.start().wrapping_add(at as usize);
                // SAFETY: the part is in the source, which does not change until the put has ended.
                let payload = unsafe { access::bytes(start, len) };
                peer.send(group, word, payload);
            }
            return Some(Completion::done());
        };
        let (id, completion) = self.operations.begin(described, 1, None);
        peer.put((region, offset), (readable, registered), id);
        if update.is_some() {
            let word = OneSidedWord::Put {
                piece,
                offset,
                update,
            };
            peer.send(group, word, &[]);
        }
        Some(completion)
    }

    /// The source of a put for a link that can read it in place, with the registration that must
    /// last meanwhile; `None` if the link cannot.
    fn readable(
        &self,
        connections: &Connections,
        pieces: &Pieces,
        rank: u32,
        &RemotePut {
            source, of_device, ..
        }: &RemotePut,
    ) -> Option<(Iovec, Option<Arc<RegisteredMemory>>)> {
        let link = connections.links[rank as usize].as_ref();
        if of_device {
            let (named, registered) = connections
                .registrations
                .find_device(link?.kind(), source)?;
            return Some((named, Some(registered)));
        }
        let Some(link) = link.filter(|link| link.capabilities().needs_registration) else {
            return Some((source, None));
        };
        if pieces.covers(self.rank, source.start(), source.len() as u64) {
            return Some((source, None));
        }
        let (named, registered) = connections.registrations.find(link.kind(), source)?;
        Some((named, Some(registered)))
    }

    /// Reads from a rank.
    pub(crate) fn get(
        &mut self,
        rank: u32,
        from: (u64, u64),
        target: IovecMut,
        described: OperationDescription,
    ) -> Arc<Completion> {
        let fragments = (target.len() as u64).div_ceil(FRAGMENT_BYTES) as usize;
        if fragments == 0 {
            return Completion::done();
        }
        let (id, completion) = self.operations.begin(described, fragments, None);
        self.peers[rank as usize].get(from, target, id);
        completion
    }

    /// Changes a cell of a rank, and fetches its previous value if requested.
    pub(crate) fn update(
        &mut self,
        rank: u32,
        (piece, update): (u64, CellUpdate),
        value: Option<Arc<AtomicU64>>,
        described: OperationDescription,
    ) -> Arc<Completion> {
        let (group, peer) = (self.group, &mut self.peers[rank as usize]);
        peer.unflushed = true;
        if value.is_none() {
            let word = OneSidedWord::Put {
                piece,
                offset: 0,
                update: Some(update),
            };
            peer.send(group, word, &[]);
            return Completion::done();
        }
        let (operation, completion) = self.operations.begin(described, 1, value);
        let id = peer.request(PeerRequest::Value(operation));
        peer.send(group, OneSidedWord::Atomic { piece, update, id }, &[]);
        completion
    }

    /// Waits until all writes of this rank over links are complete.
    pub(crate) fn quiet(&mut self, described: OperationDescription) -> Arc<Completion> {
        let group = self.group;
        let unflushed = |peer: &&mut PeerTraffic| peer.unflushed;
        let parts = self.peers.iter_mut().filter(unflushed).count();
        if parts == 0 {
            return Completion::done();
        }
        let (operation, completion) = self.operations.begin(described, parts, None);
        for peer in self.peers.iter_mut().filter(unflushed) {
            peer.unflushed = false;
            let id = peer.request(PeerRequest::Flush(operation));
            peer.send(group, OneSidedWord::Flush { id }, &[]);
        }
        completion
    }

    /// Handles a message of a rank.
    pub(crate) fn on_message(
        &mut self,
        (pieces, rank): (&Pieces, u32),
        word: OneSidedWord,
        payload: &[u8],
        finished: &mut Finished,
    ) -> Result<(), LinkError> {
        let peer = &mut self.peers[rank as usize];
        let unrequested = || violation("an answer without a request");
        match word {
            OneSidedWord::Data { id } => match peer.answered(id).ok_or_else(unrequested)? {
                PeerRequest::Fragment { operation, target } => {
                    if target.len() != payload.len() {
                        return Err(violation("a fragment of another length"));
                    }
                    // The memory is not kept after another fragment was refused.
                    if self.operations.is_unfinished(operation) {
                        // SAFETY: the target has this length, and is kept until the get has ended.
                        unsafe { access::fill(target.start(), payload) };
                    }
                    self.operations.part_done(operation, finished);
                }
                _ => return Err(unrequested()),
            },
            OneSidedWord::Before { id, value } => {
                match peer.answered(id).ok_or_else(unrequested)? {
                    PeerRequest::Value(operation) => {
                        self.operations.fetched(operation, value, finished)
                    }
                    _ => return Err(unrequested()),
                }
            }
            OneSidedWord::Flushed { id } => match peer.answered(id).ok_or_else(unrequested)? {
                PeerRequest::Flush(operation) => self.operations.part_done(operation, finished),
                _ => return Err(unrequested()),
            },
            OneSidedWord::Freed { id } => {
                let operation = peer.answered(id).ok_or_else(unrequested)?.operation();
                let freed = |operation: &str| {
                    Error::Config(format!(
                        "{operation}: that rank has freed the buffer meanwhile"
                    ))
                };
                self.operations.refuse(operation, freed, finished);
            }
            word => serve(self.group, (pieces, self.rank), peer, word, payload)?,
        }
        Ok(())
    }

    /// Advances all operations as far as possible. Returns the rank of a failed link as the error.
    pub(crate) fn advance(
        &mut self,
        connections: &Connections,
        finished: &mut Finished,
    ) -> Result<bool, (u32, LinkError)> {
        let mut moved = false;
        let operations = &mut self.operations;
        self.waits.retain(|(id, wait)| {
            let over = wait.is_over();
            if over {
                moved = true;
                operations.part_done(*id, finished);
            }
            !over
        });
        let mut done = Vec::new();
        for (rank, peer) in (0..).zip(&mut self.peers) {
            if !peer.is_busy() && peer.serve.is_empty() {
                continue;
            }
            if connections.departed[rank as usize] {
                peer.peer_has_left();
                continue;
            }
            let Some(link) = &connections.links[rank as usize] else {
                continue;
            };
            match peer.advance(self.group, link.as_ref(), &mut done) {
                Ok(progressed) => moved |= progressed,
                // The end is also reported when the link is read, after earlier messages.
                Err(LinkError::Left) => {}
                Err(error) => return Err((rank, error)),
            }
        }
        for id in done {
            operations.part_done(id, finished);
        }
        Ok(moved)
    }

    /// Ends everything.
    pub(crate) fn fail(
        &mut self,
        connections: &Connections,
        error: &Error,
        finished: &mut Finished,
    ) {
        self.over.store(true, Ordering::SeqCst);
        self.waits.clear();
        for (peer, link) in self.peers.iter_mut().zip(&connections.links) {
            peer.cancel(link.as_deref());
        }
        self.operations.fail(error, finished);
    }

    /// An unfinished operation on another rank's memory.
    pub(crate) fn unfinished(&self) -> Option<&Arc<Completion>> {
        self.operations.of_a_peer()
    }

    /// The number of unfinished operations and requests.
    pub(crate) fn pending(&self) -> usize {
        let peers = self.peers.iter();
        let busy = peers.filter(|peer| peer.is_busy() || !peer.serve.is_empty());
        self.operations.len() + busy.count()
    }

    /// Whether an operation waits for this rank.
    pub(crate) fn needs(&self, rank: u32) -> bool {
        self.peers[rank as usize].needs_peer()
    }

    /// Whether an operation waits for a signal, which any rank may send.
    pub(crate) fn waits(&self) -> bool {
        !self.waits.is_empty()
    }

    /// The ranks that operations wait for; `None` for one that may wait for any.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = Option<u32>> {
        self.operations.awaited()
    }

    pub(crate) fn deadlines(&self) -> impl Iterator<Item = Instant> {
        self.operations.deadlines()
    }

    /// An operation that has missed its deadline: its description, the rank that it waits for, and
    /// its timeout.
    pub(crate) fn overdue(&self, now: Instant) -> Option<(&str, Option<u32>, Duration)> {
        self.operations.overdue(now)
    }
}
