//! A rail: one queue pair of a link, the rings for its frames, and the queue of waiting frames and
//! operations.
//!
//! [Note: Rings] Payload is written to its destination by the adapters alone. All small data, and
//! the signal behind a payload, is a frame: it is written into the peer's ring by a write with an
//! immediate, which holds its length, so that the peer's completion reports its arrival, and that
//! of all earlier writes. The peer itself executes frames: it stores signals and few bytes where it
//! has granted them, and delivers messages.

mod operation;
mod posting;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_transport::{LinkError, RegionKey, Segment};

use crate::control::RailOffer;
use crate::frame::RingFrame;
use crate::registered::Registered;
use crate::ring::{FRAMES_MAX, HEADER_BYTES, Inbound, Outbound, Position, REPORTS_MAX, RING_BYTES};
use crate::verbs::{
    Completed, CompletionQueue, DeviceRegistration, LocalMemory, MemoryAccess, PeerMemory, Port,
    QueuePair, QueuePairAddress, ServiceLevel, Verbs,
};
use operation::{AnswerState, OperationStage, QueueEntry, RailOperation};
pub(crate) use operation::{OperationKind, Question};

/// The most requests of a queue pair.
const SENDS: u64 = 512;
/// Reserved ones of these, for reports of the room in the ring.
const SENDS_KEPT: u64 = 2 * REPORTS_MAX;
/// The bytes that are requested for inline sending: a signal, or a few more.
const INLINE_BYTES: u32 = 220;
/// The most operations under way: more are not accepted.
const OPERATIONS_MAX: usize = 64;
/// The immediate of a report of room in the other ring, in place of a frame. No frame has
/// length 0.
const ROOM: u32 = 0;

/// One rail of a link.
pub(crate) struct Rail {
    pub(crate) state: std::sync::Mutex<RailState>,
    pub(crate) completions: CompletionQueue,
    pub(crate) registered: Arc<Registered>,
    /// The number of frames that were processed.
    pub(crate) taken: AtomicU64,
    /// The number of operations under way.
    pub(crate) under_way: AtomicU64,
}

/// The state behind the lock.
pub(crate) struct RailState {
    /// First: it ends before the memory that it accesses. None once the link has ended.
    pair: Option<QueuePair>,
    number: usize,
    /// The ring that the peer writes to, and its registration.
    ring: Arc<Segment>,
    _ring_memory: DeviceRegistration,
    /// A copy of the sent frames, as their source.
    mirror: Arc<Segment>,
    mirror_memory: DeviceRegistration,
    peer_ring: PeerMemory,
    outbound: Outbound,
    inbound: Inbound,
    posted: u64,
    done: u64,
    /// The last request whose completion is signaled.
    signaled: u64,
    /// The last request that reads or changes the peer's memory.
    last_read: u64,
    queue: VecDeque<QueueEntry>,
    stages: HashMap<u64, OperationStage>,
    next_ticket: u64,
    /// The number of frames sent once the queue is empty.
    pub(crate) promised: u64,
}

impl Rail {
    /// A rail that is not connected yet, and its offer for the peer.
    pub(crate) fn new(
        number: usize,
        port: &Port,
        registered: &Arc<Registered>,
        psn: u32,
    ) -> io::Result<(Rail, RailOffer)> {
        let device = registered.device();
        let bytes = HEADER_BYTES + RING_BYTES;
        let register = |access| -> io::Result<_> {
            let segment = Arc::new(Segment::create("weft-ring", bytes)?);
            segment.reserve(0..bytes)?;
            let memory = DeviceRegistration::register(device, &segment, &(0..bytes), access)?;
            Ok((segment, memory))
        };
        let (ring, ring_memory) = register(MemoryAccess::Peer)?;
        let (mirror, mirror_memory) = register(MemoryAccess::Own)?;
        let receives = FRAMES_MAX + REPORTS_MAX;
        let completions = CompletionQueue::new(device, (SENDS + receives) as usize)?;
        let sizes = (SENDS as u32, receives as u32);
        let pair = QueuePair::new(port, &completions, sizes, INLINE_BYTES)?;
        pair.receive(receives as usize)?;
        let offer = RailOffer {
            pair: QueuePairAddress {
                number: pair.number(),
                psn,
                lid: port.lid,
                mtu: port.mtu as u8,
                reads: device.reads(),
                gid: port.gid,
            },
            ring: ring_memory.for_peer(),
        };
        let state = RailState {
            pair: Some(pair),
            number,
            peer_ring: offer.ring,
            ring,
            _ring_memory: ring_memory,
            mirror,
            mirror_memory,
            outbound: Outbound::default(),
            inbound: Inbound::default(),
            posted: 0,
            done: 0,
            signaled: 0,
            last_read: 0,
            queue: VecDeque::new(),
            stages: HashMap::new(),
            next_ticket: 1,
            promised: 0,
        };
        let rail = Rail {
            state: state.into(),
            completions,
            registered: Arc::clone(registered),
            taken: AtomicU64::new(0),
            under_way: AtomicU64::new(0),
        };
        Ok((rail, offer))
    }

    /// Whether this is the process that has made it, not a forked child.
    pub(crate) fn is_own(&self) -> bool {
        self.registered.device().is_own()
    }

    /// Whether its device supports atomics on the peer's memory.
    pub(crate) fn has_atomics(&self) -> bool {
        self.registered.device().has_atomics()
    }

    /// Processes the queue pair's completions.
    pub(crate) fn poll(&self, state: &mut RailState) -> Result<(), LinkError> {
        let polled = state.poll(&self.completions);
        self.under_way.store(state.under_way(), Ordering::Relaxed);
        polled
    }
}

impl RailState {
    /// Connects to the peer's end.
    pub(crate) fn connect(
        &mut self,
        port: &Port,
        own: &RailOffer,
        peer: &RailOffer,
        service: ServiceLevel,
    ) -> io::Result<()> {
        self.peer_ring = peer.ring;
        match &self.pair {
            Some(pair) => pair.connect(port, &own.pair, &peer.pair, service),
            None => Ok(()),
        }
    }

    fn poll(&mut self, completions: &CompletionQueue) -> Result<(), LinkError> {
        let Some(pair) = &self.pair else {
            return Ok(());
        };
        let (mut failed, mut room_reported, mut fits) = (None, false, true);
        loop {
            let mut received = 0;
            let more = completions.poll(|completed| match completed {
                Completed::Sent(number) => self.done = self.done.max(number),
                Completed::Arrived(length) => {
                    received += 1;
                    match length {
                        ROOM => room_reported = true,
                        length => fits &= self.inbound.arrive(length),
                    }
                }
                Completed::Failed(status) => failed = failed.or(Some(status)),
            })?;
            if !fits {
                let text = format!("more than {FRAMES_MAX} frames in a ring");
                return Err(LinkError::Protocol(text));
            }
            pair.receive(received)?;
            if !more {
                break;
            }
        }
        let done = self.done;
        self.stages
            .retain(|_, stage| !matches!(stage, OperationStage::Posted(last) if *last <= done));
        if room_reported || !self.queue.is_empty() {
            self.read_room()?;
        }
        match failed {
            None => Ok(()),
            Some(status) => Err(LinkError::Gone(in_words(status))),
        }
    }

    /// Reads how much of its ring the peer has emptied.
    fn read_room(&mut self) -> Result<(), LinkError> {
        let word = |offset| self.ring.word(offset).load(Ordering::Acquire);
        // The frames first: a byte count that is read afterwards belongs to these or later frames.
        let (frames, bytes) = (word(8), word(0));
        match self.outbound.taken(Position { bytes, frames }) {
            true => Ok(()),
            false => Err(LinkError::Protocol(
                "the peer reports more data taken than was sent".into(),
            )),
        }
    }

    /// Sends a frame, now or once there is room.
    pub(crate) fn frame(&mut self, frame: &RingFrame<'_>) {
        self.promised += 1;
        self.queue.push_back(QueueEntry::Frame(frame.encode()));
    }

    /// Starts an operation, unless there are too many. Returns its ticket.
    pub(crate) fn operation(
        &mut self,
        what: OperationKind,
        (region, range): (RegionKey, Range<u64>),
        own: Vec<LocalMemory>,
        frame: Option<RingFrame<'_>>,
    ) -> Option<u64> {
        if self.stages.len() >= OPERATIONS_MAX {
            return None;
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.promised += u64::from(frame.is_some());
        self.stages.insert(ticket, OperationStage::Queued);
        self.queue.push_back(QueueEntry::Operation(RailOperation {
            ticket,
            what,
            region,
            range,
            own,
            frame: frame.map(|frame| frame.encode()),
            parts: None,
            question: AnswerState::Unasked,
            last_posted: 0,
        }));
        Some(ticket)
    }

    /// Passes the next frame's bytes to `each`, and removes the frame unless `each` returns None.
    pub(crate) fn next_frame<T>(
        &mut self,
        each: impl FnOnce(&[u8]) -> Result<Option<T>, LinkError>,
    ) -> Result<Option<T>, LinkError> {
        let Some((length, start)) = self.inbound.next() else {
            return Ok(None);
        };
        let beyond = || LinkError::Protocol("a frame that is longer than a ring".into());
        let start = HEADER_BYTES + start.ok_or_else(beyond)?;
        let at = self.ring.at(&(start..start + length)).ok_or_else(beyond)?;
        let mut bytes = vec![0; length as usize];
        // SAFETY: the frame is in the ring; a peer that keeps the protocol does not write there
        // before the frame is reported as taken, and bytes of another peer are copied before they
        // are parsed.
        unsafe {
            at.as_ptr()
                .copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len())
        };
        let taken = each(&bytes)?;
        if taken.is_some() {
            self.inbound.take();
        }
        Ok(taken)
    }

    /// The number of frames that were processed.
    pub(crate) fn frames_taken(&self) -> u64 {
        self.inbound.frames()
    }

    /// Whether the connection has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.pair.is_none()
    }

    /// Whether an operation is complete.
    pub(crate) fn is_complete(&self, ticket: u64) -> bool {
        !self.stages.contains_key(&ticket)
    }

    /// The number of operations under way.
    pub(crate) fn under_way(&self) -> u64 {
        self.stages.len() as u64
    }

    /// Whether nothing waits for room.
    pub(crate) fn is_sent(&self) -> bool {
        self.queue.is_empty() || self.pair.is_none()
    }

    /// Whether the adapters have completed everything. Requests a completion, if that is not known.
    pub(crate) fn is_done(&mut self) -> Result<bool, LinkError> {
        if self.pair.is_none() || (self.queue.is_empty() && self.done == self.posted) {
            return Ok(true);
        }
        if self.queue.is_empty() {
            self.request_completion()?;
        }
        Ok(false)
    }

    /// Cancels an operation. False if an adapter may still be executing it: call again.
    pub(crate) fn cancel(&mut self, ticket: u64) -> Result<bool, LinkError> {
        if self.pair.is_none() {
            self.stages.remove(&ticket);
        }
        if !self.stages.contains_key(&ticket) {
            return Ok(true);
        }
        let is_it =
            |queued: &QueueEntry| matches!(queued, QueueEntry::Operation(o) if o.ticket == ticket);
        let Some(at) = self.queue.iter().position(is_it) else {
            return Ok(false);
        };
        if let Some(QueueEntry::Operation(operation)) = self.queue.get_mut(at) {
            operation.parts = Some(VecDeque::new());
            // A message that waits for the frame's number still gets a frame.
            if let Some(frame) = &mut operation.frame {
                *frame = RingFrame::Mark.encode();
            }
            if operation.last_posted > self.done {
                self.request_completion()?;
                return Ok(false);
            }
            match operation.frame.take() {
                Some(frame) => self.queue[at] = QueueEntry::Frame(frame),
                None => drop(self.queue.remove(at)),
            }
        }
        self.stages.remove(&ticket);
        Ok(true)
    }

    /// Cancels all operations that have not begun.
    pub(crate) fn cancel_all(&mut self) {
        let tickets: Vec<u64> = self.stages.keys().copied().collect();
        for ticket in tickets {
            // Operations that cannot be cancelled are waited for.
            let _ = self.cancel(ticket);
        }
    }

    /// Handles the answer to a question.
    pub(crate) fn is_answered(&mut self, ticket: u64) {
        for queued in &mut self.queue {
            if let QueueEntry::Operation(operation) = queued
                && operation.ticket == ticket
            {
                operation.question = AnswerState::Answered;
            }
        }
    }

    /// Ends the connection: no memory is accessed any more, by either adapter.
    pub(crate) fn end(&mut self) {
        self.pair = None;
        self.queue.clear();
        self.inbound.clear();
    }
}

/// A completion's status, in words.
fn in_words(status: i32) -> String {
    let name = Verbs::get().map_or_else(Into::into, |verbs| verbs.status(status));
    format!("the RDMA device reports: {name} (status {status})")
}
