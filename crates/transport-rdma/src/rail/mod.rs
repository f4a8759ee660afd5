//! A rail: one queue pair of a link, the rings that its frames lie in, and what waits for either.
//!
//! [Note: Rings] Payload is written where it belongs, by the adapters alone. Everything small, and
//! the signal behind a payload, is a frame: written into the peer's ring by a write with an
//! immediate, which tells its length, so that the peer's completion says that it is there, and all
//! that was written before. The peer itself carries frames out: it stores signals and few bytes
//! where it has granted them, and gives out messages.

mod operation;
mod posting;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_transport::{LinkError, RegionKey, Segment};

use crate::frame::Frame;
use crate::news::RailOffer;
use crate::registered::Registered;
use crate::ring::{
    FRAMES_MAX, HEADER_BYTES, Inbound, Outbound, Position, RING_BYTES, TELLINGS_MAX,
};
use crate::verbs::{
    Access, Completed, CompletionQueue, OwnMemory, PeerMemory, Port, QueuePair, QueuePairAddress,
    RegisteredMemory, ServiceLevel, Verbs,
};
pub(crate) use operation::{Action, Question};
use operation::{Operation, Queued, Stage, Stand};

/// Requests that a queue pair has room for.
const SENDS: u64 = 512;
/// Of these, what is kept for telling how far the ring was emptied.
const SENDS_KEPT: u64 = 2 * TELLINGS_MAX;
/// Bytes that are asked to be sent inline: a signal, or a few more.
const INLINE_BYTES: u32 = 220;
/// Operations that can be under way: more are refused.
const OPERATIONS_MAX: usize = 64;
/// The immediate that stands for no frame, but for news of the other ring. No frame has length 0.
const ROOM: u32 = 0;

/// One rail of a link.
pub(crate) struct Rail {
    pub(crate) state: std::sync::Mutex<RailState>,
    pub(crate) completions: CompletionQueue,
    pub(crate) registered: Arc<Registered>,
    /// How many frames were taken in.
    pub(crate) taken: AtomicU64,
    /// How many operations are under way.
    pub(crate) under_way: AtomicU64,
}

/// What is behind the lock.
pub(crate) struct RailState {
    /// First: it ends before the memory that it reaches. None once the link has ended.
    pair: Option<QueuePair>,
    number: usize,
    /// What the peer writes into, and its registration.
    ring: Arc<Segment>,
    _ring_memory: RegisteredMemory,
    /// Frames as they are sent.
    mirror: Arc<Segment>,
    mirror_memory: RegisteredMemory,
    peer_ring: PeerMemory,
    outbound: Outbound,
    inbound: Inbound,
    posted: u64,
    done: u64,
    /// The last request that is told to be complete.
    told: u64,
    /// The last that reads or changes the peer's memory.
    last_read: u64,
    queue: VecDeque<Queued>,
    stages: HashMap<u64, Stage>,
    next_ticket: u64,
    /// Frames that will have been sent once the queue is empty.
    pub(crate) promised: u64,
}

impl Rail {
    /// A rail that is not connected yet, and what the peer must know of it.
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
            let memory = RegisteredMemory::register(device, &segment, &(0..bytes), access)?;
            Ok((segment, memory))
        };
        let (ring, ring_memory) = register(Access::Peer)?;
        let (mirror, mirror_memory) = register(Access::Own)?;
        let receives = FRAMES_MAX + TELLINGS_MAX;
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
            told: 0,
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

    /// Whether its device changes memory of peers in one step.
    pub(crate) fn has_atomics(&self) -> bool {
        self.registered.device().has_atomics()
    }

    /// Takes what the queue pair has completed.
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
        let (mut failed, mut news_of_room, mut fits) = (None, false, true);
        loop {
            let mut came = 0;
            let more = completions.poll(|completed| match completed {
                Completed::Sent(number) => self.done = self.done.max(number),
                Completed::Arrived(length) => {
                    came += 1;
                    match length {
                        ROOM => news_of_room = true,
                        length => fits &= self.inbound.arrive(length),
                    }
                }
                Completed::Failed(status) => failed = failed.or(Some(status)),
            })?;
            if !fits {
                let text = format!("more than the {FRAMES_MAX} frames that may lie in a ring");
                return Err(LinkError::Protocol(text));
            }
            pair.receive(came)?;
            if !more {
                break;
            }
        }
        let done = self.done;
        self.stages
            .retain(|_, stage| !matches!(stage, Stage::Posted(last) if *last <= done));
        if news_of_room || !self.queue.is_empty() {
            self.look_for_room()?;
        }
        match failed {
            None => Ok(()),
            Some(status) => Err(LinkError::Gone(in_words(status))),
        }
    }

    /// Reads how far the peer has emptied its ring.
    fn look_for_room(&mut self) -> Result<(), LinkError> {
        let word = |offset| self.ring.word(offset).load(Ordering::Acquire);
        // The frames first: bytes that are told behind them are of these or later frames.
        let (frames, bytes) = (word(8), word(0));
        match self.outbound.taken(Position { bytes, frames }) {
            true => Ok(()),
            false => Err(LinkError::Protocol("more was taken than was sent".into())),
        }
    }

    /// Sends a frame, now or once there is room.
    pub(crate) fn frame(&mut self, frame: &Frame<'_>) {
        self.promised += 1;
        self.queue.push_back(Queued::Frame(frame.encode()));
    }

    /// Starts an operation, unless there are too many. Returns its ticket.
    pub(crate) fn operation(
        &mut self,
        what: Action,
        (region, range): (RegionKey, Range<u64>),
        own: Vec<OwnMemory>,
        frame: Option<Frame<'_>>,
    ) -> Option<u64> {
        if self.stages.len() >= OPERATIONS_MAX {
            return None;
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.promised += u64::from(frame.is_some());
        self.stages.insert(ticket, Stage::Queued);
        self.queue.push_back(Queued::Operation(Operation {
            ticket,
            what,
            region,
            range,
            own,
            frame: frame.map(|frame| frame.encode()),
            parts: None,
            question: Stand::Unasked,
            last_posted: 0,
        }));
        Some(ticket)
    }

    /// Takes the next frame, if `each` will have it. It sees the frame's bytes.
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
        // SAFETY: the frame lies in the ring; a peer that keeps to the protocol does not write
        // there before it is told that the frame was taken, and what another one writes is copied
        // before anybody looks at it.
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

    /// How many frames were taken in.
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

    /// How many operations are under way.
    pub(crate) fn under_way(&self) -> u64 {
        self.stages.len() as u64
    }

    /// Whether nothing waits for room.
    pub(crate) fn is_sent(&self) -> bool {
        self.queue.is_empty() || self.pair.is_none()
    }

    /// Whether the adapters have done all of it. Asks to be told, if that is not known.
    pub(crate) fn is_done(&mut self) -> Result<bool, LinkError> {
        if self.pair.is_none() || (self.queue.is_empty() && self.done == self.posted) {
            return Ok(true);
        }
        if self.queue.is_empty() {
            self.ask_to_be_told()?;
        }
        Ok(false)
    }

    /// Gives up an operation. False if an adapter may still be at it: call again.
    pub(crate) fn cancel(&mut self, ticket: u64) -> Result<bool, LinkError> {
        if self.pair.is_none() {
            self.stages.remove(&ticket);
        }
        if !self.stages.contains_key(&ticket) {
            return Ok(true);
        }
        let is_it = |queued: &Queued| matches!(queued, Queued::Operation(o) if o.ticket == ticket);
        let Some(at) = self.queue.iter().position(is_it) else {
            return Ok(false);
        };
        if let Some(Queued::Operation(operation)) = self.queue.get_mut(at) {
            operation.parts = Some(VecDeque::new());
            // Whoever waits for the frame by its number still gets one.
            if let Some(frame) = &mut operation.frame {
                *frame = Frame::Mark.encode();
            }
            if operation.last_posted > self.done {
                self.ask_to_be_told()?;
                return Ok(false);
            }
            match operation.frame.take() {
                Some(frame) => self.queue[at] = Queued::Frame(frame),
                None => drop(self.queue.remove(at)),
            }
        }
        self.stages.remove(&ticket);
        Ok(true)
    }

    /// Gives up all operations that have not begun.
    pub(crate) fn cancel_all(&mut self) {
        let tickets: Vec<u64> = self.stages.keys().copied().collect();
        for ticket in tickets {
            // What cannot be given up is waited for.
            let _ = self.cancel(ticket);
        }
    }

    /// The answer to a question has come.
    pub(crate) fn is_answered(&mut self, ticket: u64) {
        for queued in &mut self.queue {
            if let Queued::Operation(operation) = queued
                && operation.ticket == ticket
            {
                operation.question = Stand::Answered;
            }
        }
    }

    /// Ends the connection: nothing is touched any more, by either adapter.
    pub(crate) fn end(&mut self) {
        self.pair = None;
        self.queue.clear();
        self.inbound.clear();
    }
}

/// What a completion's status means for whoever reads the error.
fn in_words(status: i32) -> String {
    let name = Verbs::get().map_or_else(Into::into, |verbs| verbs.status(status));
    format!("the RDMA device reports: {name} (status {status})")
}
