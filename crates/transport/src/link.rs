//! The contract of transports: operations of links on peers' regions, and their capabilities.
//!
//! *Order.* Everything sent over one link takes effect at the peer in the order of the calls: puts
//! with their signals, signals, messages; gets and atomics read what was there when their turn
//! came. Different links know no order.
//!
//! *Completion* is local: a complete put leaves its source to the caller, a complete get has filled
//! its target. Operations complete in any order. That a put has arrived is told by what comes back:
//! a signal, or a get that was called after it.
//!
//! *Waking.* What arrives, what completes and what makes room again wakes the endpoint that it
//! concerns: it rings the doorbell, or, on a link with [manual
//! progress](Capabilities::manual_progress), makes the descriptor ready.
//!
//! *Cells.* An atomic is atomic among the atomics of links of one transport. A cell that is reached
//! over several transports, or by its owner's processor too, goes through its owner, who changes it
//! on behalf of the others.

use std::fmt;
use std::ops::Range;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::{LinkError, Presence, RegionKey, RegistrationKey, Segment};

/// The longest control message, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// The most bytes that [`Link::inject`] takes.
pub const INJECT_BYTES_MAX: usize = 256;

/// Identifies an endpoint: random, never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(pub u128);

impl fmt::Debug for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0 >> 96)
    }
}

/// Which transport a link belongs to: its name. What it can do is told by its [`Capabilities`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TransportKind {
    /// Endpoints within one process.
    Loopback,
    /// Shared memory between processes of one host.
    Shm,
    /// TCP.
    Tcp,
    /// RDMA verbs.
    Rdma,
    /// A transport of the caller's own. An endpoint has at most one.
    Custom,
}

impl fmt::Display for TransportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TransportKind::Loopback => "loopback",
            TransportKind::Shm => "shm",
            TransportKind::Tcp => "tcp",
            TransportKind::Rdma => "rdma",
            TransportKind::Custom => "custom",
        })
    }
}

/// What the links of a transport can do, and what they ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// Peers' regions are mapped ([`Link::memory`]). A link that does not map checks each access
    /// against what was granted.
    pub maps: bool,
    /// What puts read, and gets and atomics write, must lie in a region that this endpoint has
    /// exposed; what puts read may also be [registered](MemoryRegistration::register) by itself.
    pub needs_registration: bool,
    /// Nothing moves but by calls: arrivals by [`Link::receive`], what is queued by
    /// [`Link::flush`]. Whoever sleeps watches the [descriptor](Link::descriptor). Otherwise
    /// progress is automatic, and the doorbell tells of it.
    pub manual_progress: bool,
}

/// How a network is asked to treat the packets of an endpoint's links. Means nothing where there
/// are none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TrafficClass {
    /// As any other traffic.
    #[default]
    BestEffort,
    /// Behind other traffic.
    Bulk,
    /// Before other traffic.
    LowLatency,
}

impl TrafficClass {
    /// The code point (RFC 4594, RFC 8622) that networks commonly know it by: six bits of the
    /// header of IP.
    pub fn code_point(self) -> u8 {
        match self {
            TrafficClass::BestEffort => 0,
            // LE, "lower effort".
            TrafficClass::Bulk => 1,
            // CS5, "signalling". Expedited forwarding is policed to the rates of telephones.
            TrafficClass::LowLatency => 40,
        }
    }
}

/// A 64-bit word in the peer's pool and what to store there. Signals are words of pools: whoever
/// waits for one reads its own memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signal {
    /// Byte offset in the peer's pool, a multiple of 8.
    pub offset: u64,
    /// The value to store.
    pub value: u64,
}

/// Memory that a link reads after the call that names it has returned.
#[derive(Clone, Copy, Debug)]
pub struct Iovec {
    start: *const u8,
    len: usize,
    registration: Option<RegistrationKey>,
}

// SAFETY: a plain address; whoever made it has promised what `Iovec::new` asks for, to all threads.
unsafe impl Send for Iovec {}
// SAFETY: as above.
unsafe impl Sync for Iovec {}

impl Iovec {
    /// Names memory. If it is none, `start` may be any address.
    ///
    /// # Safety
    /// Until each put that it is given to is complete or cancelled, or its link has ended, `len`
    /// bytes from `start` on stay readable. Nobody writes to them, unless ordered behind the put by
    /// a signal of the peer's. Of a [registration](MemoryRegistration::register): while it is made, and as
    /// long as puts name it, they stay mapped where they are. [Memory of a
    /// device](MemoryRegistration::register_device) need be readable by adapters only.
    pub unsafe fn new(start: *const u8, len: usize) -> Iovec {
        // A slice of no bytes, as links make of it, must not begin at null.
        let start = match len {
            0 => NonNull::dangling().as_ptr(),
            _ => start,
        };
        Iovec {
            start,
            len,
            registration: None,
        }
    }

    /// The same memory, which lies in what was [registered](MemoryRegistration::register) under this key.
    pub fn registered(self, key: RegistrationKey) -> Iovec {
        Iovec {
            registration: Some(key),
            ..self
        }
    }

    /// What it was registered under, if by itself and not with a region.
    pub fn registration(self) -> Option<RegistrationKey> {
        self.registration
    }

    /// The first byte.
    pub fn start(self) -> *const u8 {
        self.start
    }

    /// The number of bytes.
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// Memory of a device as a file, by which an adapter reaches it without the processor (dma-buf).
#[derive(Clone, Copy, Debug)]
pub struct DmaBuf<'a> {
    /// The file. It may be closed once the memory is registered.
    pub file: BorrowedFd<'a>,
    /// Where the memory begins in it, in bytes.
    pub offset: u64,
}

/// Memory that a link writes after the call that names it has returned.
#[derive(Clone, Copy, Debug)]
pub struct IovecMut {
    start: *mut u8,
    len: usize,
}

// SAFETY: a plain address; whoever made it has promised what `IovecMut::new` asks for, to all
// threads.
unsafe impl Send for IovecMut {}
// SAFETY: as above.
unsafe impl Sync for IovecMut {}

impl IovecMut {
    /// Names memory.
    ///
    /// # Safety
    /// Until the operation that it is given to is complete or cancelled, or its link has ended,
    /// `len` bytes from `start` on stay writable, and nobody else touches them. Of a redirection:
    /// until it is taken back.
    pub unsafe fn new(start: *mut u8, len: usize) -> IovecMut {
        IovecMut { start, len }
    }

    /// The first byte.
    pub fn start(self) -> *mut u8 {
        self.start
    }

    /// The number of bytes.
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// Names an operation under way on a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket(pub u64);

/// Names a [redirection](Redirections::redirect) of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Redirection(pub u64);

/// What became of an operation that was called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Submission {
    /// It is complete.
    Done,
    /// It is under way until [`Link::completed`] says that it is complete.
    UnderWay(Ticket),
    /// The queue is full. Nothing was taken: call again once there was progress.
    Full,
}

/// What to do with a 64-bit cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicOp {
    /// Adds, wrapping around.
    FetchAdd(u64),
    /// Stores the new value if the cell holds the expected one.
    CompareSwap {
        /// What the cell must hold.
        expected: u64,
        /// What to store then.
        new: u64,
    },
}

/// Whether everything that was queued is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlushState {
    /// All of it.
    Done,
    /// Not all of it.
    Pending,
}

/// What is known of a link that nobody is using.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Nothing speaks against using it.
    Good,
    /// The peer's host owes a sign of life: its line may be cut.
    Silent,
    /// It is of no more use.
    Ended,
}

/// What has passed over a link since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrafficCounts {
    /// Bytes that the peer's host has acknowledged.
    pub sent_bytes: u64,
    /// Bytes that have come from there.
    pub received_bytes: u64,
    /// Packets that were sent once more.
    pub retransmissions: u64,
}

/// Takes what arrives on a link.
pub trait Inbox {
    /// A control message.
    fn message(&mut self, bytes: &[u8]);
}

/// One of the streams of a link. Its operations take effect at the peer in the order of their
/// calls, which nothing is said of between two streams.
pub trait Stream: Send + Sync {
    /// Stores a signal in the peer's pool. Queued if it cannot go at once.
    fn signal(&self, signal: Signal) -> Result<(), LinkError>;

    /// As [`Stream::signal`], where the peer can wait for it: it may stay queued until something
    /// else goes over the stream, or until [`Link::flush_late`].
    fn signal_late(&self, signal: Signal) -> Result<(), LinkError> {
        self.signal(signal)
    }

    /// Writes at most [`INJECT_BYTES_MAX`] bytes into a region of the peer's, then stores the
    /// signal. The bytes are copied: they may be reused at once. Queued if it cannot go at once.
    fn inject(
        &self,
        region: RegionKey,
        offset: u64,
        bytes: &[u8],
        signal: Option<Signal>,
    ) -> Result<(), LinkError>;

    /// Writes the pieces, one behind the other, into a region of the peer's, then stores the
    /// signal. Several can be under way.
    fn put(
        &self,
        region: RegionKey,
        offset: u64,
        pieces: &[Iovec],
        signal: Option<Signal>,
    ) -> Result<Submission, LinkError>;
}

/// A connection between two endpoints, usable from any thread. No call blocks.
///
/// It is its ordinary stream itself, in whose order gets, atomics and messages are too.
pub trait Link: Stream + LinkStatus {
    /// The stream of operations that go ahead of what the ordinary one has queued. The same where
    /// nothing is ever queued for long.
    fn urgent(&self) -> &dyn Stream;

    /// The number of the stream that has the least queued: the ordinary one's is 0.
    fn emptiest_stream(&self) -> usize {
        0
    }

    /// The streams that a link has besides its ordinary and urgent one, numbered from 1: other ways
    /// through the network, for what is large. A message is behind everything that was called
    /// before on any of them.
    fn further_stream(&self, _number: usize) -> Option<&dyn Stream> {
        None
    }

    /// The transport.
    fn kind(&self) -> TransportKind;

    /// What it can do: the same for all links of one kind.
    fn capabilities(&self) -> Capabilities;

    /// The endpoint at the other end.
    fn peer(&self) -> EndpointId;

    /// A region of the peer's, where loads and stores reach it: the pool, and what was granted
    /// before a message that has come. The mapping outlives the link and the peer.
    fn memory(&self, region: RegionKey) -> Option<Arc<Segment>>;

    /// Whether an operation is complete. An error if it never will be, as the link has ended before
    /// it was carried out: then its memory is not touched any more either.
    fn completed(&self, ticket: Ticket) -> Result<bool, LinkError>;

    /// Gives up an operation that is under way: its memory is not touched any more. What a put has
    /// left in its range is not defined, and unless it was complete its signal is not stored.
    fn cancel(&self, ticket: Ticket);

    /// Sends a control message of at most [`MESSAGE_BYTES_MAX`], and asks the peer to look at it.
    /// Queued if it cannot go at once.
    fn message(&self, bytes: &[u8]) -> Result<(), LinkError>;

    /// Sends a message as [`Link::message`] does, of these pieces, to a peer that asks for it:
    /// unless it sleeps on its doorbell, it is not told, but looks whether it [has
    /// polled messages](PolledMessages::has_polled_message) when it waits for some.
    fn polled_message(&self, pieces: &[&[u8]]) -> Result<(), LinkError> {
        self.message(&pieces.concat())
    }

    /// Sends what is queued, puts included; `Pending` if some remains. Nothing is sent if nothing
    /// is queued but [late signals](Stream::signal_late).
    fn flush(&self) -> Result<FlushState, LinkError>;

    /// As [`Link::flush`], and sends late signals too.
    fn flush_late(&self) -> Result<FlushState, LinkError> {
        self.flush()
    }

    /// What to watch for readability (and, while [`Link::flush`] is `Pending`, for writability), if
    /// anything.
    fn descriptor(&self) -> Option<RawFd>;

    /// Takes in whatever has arrived, without blocking. An error means that the link is of no more
    /// use.
    fn receive(&self, inbox: &mut dyn Inbox) -> Result<(), LinkError>;

    /// Lets the peer reach this range of a local region. Where the transport maps, the peer maps
    /// all of the region.
    fn grant(&self, region: RegionKey, range: Range<u64>) -> Result<(), LinkError>;

    /// Takes that back. A link that checks drops later writes silently (they are late, not
    /// hostile).
    fn revoke(&self, region: RegionKey, range: Range<u64>);

    /// Cancels what is under way, says goodbye behind what is queued, and closes. Idempotent.
    fn close(&self);

    /// Its gets, if it has them.
    fn reads(&self) -> Option<&dyn RemoteReads> {
        None
    }

    /// Its atomics, if it has them.
    fn atomics(&self) -> Option<&dyn RemoteAtomics> {
        None
    }

    /// Its redirections, if it has them.
    fn redirections(&self) -> Option<&dyn Redirections> {
        None
    }

    /// Where its polled messages wait, if not among the others.
    fn polled_messages(self: Arc<Self>) -> Option<Arc<dyn PolledMessages>> {
        None
    }
}

/// The state of a link and of its peer.
pub trait LinkStatus {
    /// Where the peer is, for whoever waits for it.
    fn presence(&self) -> Presence;

    /// Whether it can be used, for whoever might also make another one. Costs a system call where
    /// the peer is on another host.
    fn standing(&self) -> Standing {
        Standing::Good
    }

    /// Whether the peer has ended, as is proven: it touches nothing any more. The end of a link
    /// alone does not prove that.
    fn peer_has_ended(&self) -> bool {
        false
    }

    /// What has passed over it, where the network counts.
    fn traffic(&self) -> Option<TrafficCounts> {
        None
    }
}

/// Links that read the peer's memory.
pub trait RemoteReads {
    /// Reads from a region of the peer's.
    fn get(&self, region: RegionKey, offset: u64, into: IovecMut) -> Result<Submission, LinkError>;
}

/// Links that change cells of the peer's memory and return their former values.
pub trait RemoteAtomics {
    /// Changes a cell of the peer's, at a multiple of 8, and writes what it held before, as eight
    /// bytes.
    fn atomic(
        &self,
        region: RegionKey,
        offset: u64,
        op: AtomicOp,
        into: IovecMut,
    ) -> Result<Submission, LinkError>;
}

/// Links whose [polled messages](Link::polled_message) wait in memory until they are taken.
pub trait PolledMessages: Link {
    /// Whether there are any, for [`PolledMessages::take_polled_message`]. Costs a load.
    fn has_polled_message(&self) -> bool;

    /// Takes in the polled messages that are in memory, and what was sent between. As
    /// [`Link::receive`], but the link's end may go unnoticed.
    fn take_polled_message(&self, inbox: &mut dyn Inbox) -> Result<(), LinkError>;
}

/// Links that write what they receive themselves, and so can write it elsewhere.
pub trait Redirections {
    /// Writes what puts bring from now on for a place in a local region to other memory instead,
    /// until that is [taken back](Redirections::take_back). The place begins at `offset` and is as
    /// long as the memory; no two places of one link overlap. What the peer may reach is what was
    /// granted, as before.
    fn redirect(&self, region: RegionKey, offset: u64, into: IovecMut) -> Redirection;

    /// Ends a redirection, also one of a link that has ended: its memory is not touched any more.
    /// Returns the parts of the place, in any order, whose last bytes are there; the others are in
    /// the region.
    fn take_back(&self, redirection: Redirection) -> Vec<Range<u64>>;
}

/// Decides about incoming connections and takes the links that come of them.
pub trait LinkEvents: Send + Sync {
    /// Whether to accept a connection from this authenticated peer. `false` when this endpoint is
    /// connecting to the same peer at the same moment and its own attempt shall win, or has a link
    /// already.
    fn accept(&self, peer: EndpointId) -> bool;

    /// A connection that was accepted is ready.
    fn connected(&self, link: Arc<dyn Link>);

    /// A connection that was accepted has come to nothing. Told once for each.
    fn failed(&self, _peer: EndpointId) {}

    /// Peers that call wait in vain, as this process has no descriptor left for another connection.
    /// Told again and again while that lasts.
    fn exhausted(&self) {}
}

/// Makes links of one kind for one endpoint.
pub trait Transport: Send + Sync {
    /// The kind of links that it makes.
    fn kind(&self) -> TransportKind;

    /// What they can do.
    fn capabilities(&self) -> Capabilities;

    /// What a peer needs in order to connect here: published at the rendezvous, opaque to everybody
    /// else.
    fn address(&self) -> Vec<u8>;

    /// Makes memory a region, that links can [grant](Link::grant), and use as their own where they
    /// need registration.
    fn expose(&self, segment: &Arc<Segment>) -> Result<RegionKey, LinkError>;

    /// Ends that. Peers do not reach the region any more by operations on links, and forget their
    /// mapping of it; whoever has [asked for it](Link::memory) keeps it until dropped.
    fn withdraw(&self, region: RegionKey);

    /// Its registration of memory beside regions, where its links need that.
    fn registration(self: Arc<Self>) -> Option<Arc<dyn MemoryRegistration>> {
        None
    }

    /// Starts taking in connections, on a thread of its own, until [`Transport::close`].
    fn listen(&self, events: Arc<dyn LinkEvents>) -> Result<(), LinkError>;

    /// From now on takes in connections of the endpoint with this address. A transport that knows
    /// callers by something else takes in whoever knows it.
    fn admit(&self, _peer: EndpointId, _address: &[u8]) -> Result<(), LinkError> {
        Ok(())
    }

    /// The cipher that seals everything on links to the endpoint with this address, by its name;
    /// None where nothing does.
    fn cipher(&self, _address: &[u8]) -> Option<&'static str> {
        None
    }

    /// Connects to the endpoint with this address, which must have [admitted](Transport::admit)
    /// this one; it may do so later. Blocks until done, refused, past the deadline,
    /// or cancelled (noticed within 50 ms).
    /// `Ok(None)`: the peer answered that its own attempt to connect here shall win; wait for it.
    fn connect(
        &self,
        peer: EndpointId,
        address: &[u8],
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<Option<Arc<dyn Link>>, LinkError>;

    /// Stops listening until [`Transport::listen`] is called again, which may change the address;
    /// links stay as they are. False if it listens on, as those do that strangers do not reach.
    fn rest(&self) -> bool {
        false
    }

    /// Stops listening. Links stay as they are.
    fn close(&self);

    /// Waits until the goodbyes of all closed links are sent and taken, for so long at most. A
    /// process that ends at once would take them with it, and its peers would see a death.
    fn drain(&self, _timeout: Duration) {}
}

/// Transports whose links [need registration](Capabilities::needs_registration).
pub trait MemoryRegistration: Transport {
    /// Registers memory of this process for what puts read that [name it](Iovec::registered), until
    /// [`MemoryRegistration::deregister`].
    fn register(&self, memory: Iovec) -> Result<RegistrationKey, LinkError>;

    /// The same for memory of a device, at an address that nothing else in this process has. It is
    /// read by that file, and never by the processor.
    fn register_device(
        &self,
        memory: Iovec,
        file: DmaBuf<'_>,
    ) -> Result<RegistrationKey, LinkError>;

    /// Ends either. No put that names it is under way any more. In a forked child it does nothing.
    fn deregister(&self, key: RegistrationKey);
}
