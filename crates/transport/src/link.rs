//! The contract of transports: operations of links on peers' regions, and their capabilities.
//!
//! *Order.* Everything sent over one link takes effect at the peer in the order of the calls: puts
//! with their signals, signals, messages; gets and atomics read the values at their position in
//! that order. There is no order between different links.
//!
//! *Completion* is local: after a complete put the caller may reuse its source, a complete get has
//! filled its target. Operations complete in any order. Arrival of a put is shown by what follows
//! it: a signal, or a get that was called after it.
//!
//! *Waking.* Arrivals, completions and new room in a queue wake the endpoint concerned: they ring
//! its doorbell, or, on a link with [manual progress](Capabilities::manual_progress), make the
//! descriptor ready.
//!
//! *Cells.* An atomic is atomic among the atomics of links of one transport. A cell that is
//! accessed over several transports, or also by its owner's processor, is only changed by its
//! owner, on behalf of the others.

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

/// The transport of a link, as a name. Its abilities are its [`Capabilities`].
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

/// The abilities and requirements of a transport's links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// Peers' regions are mapped ([`Link::memory`]). A link that does not map checks each access
    /// against its grants.
    pub maps: bool,
    /// Sources of puts, and targets of gets and atomics, must be in a region that this endpoint has
    /// exposed; sources of puts may instead be [registered](MemoryRegistration::register)
    /// separately.
    pub needs_registration: bool,
    /// Progress needs calls: [`Link::receive`] for arrivals, [`Link::flush`] for queued data. A
    /// sleeper watches the [descriptor](Link::descriptor). Otherwise progress is automatic, and the
    /// doorbell reports it.
    pub manual_progress: bool,
}

/// The treatment that is requested from the network for the packets of an endpoint's links. Has no
/// effect within a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TrafficClass {
    /// Like any other traffic.
    #[default]
    BestEffort,
    /// Behind other traffic.
    Bulk,
    /// Before other traffic.
    LowLatency,
}

impl TrafficClass {
    /// The usual code point (RFC 4594, RFC 8622): six bits of the IP header.
    pub fn code_point(self) -> u8 {
        match self {
            TrafficClass::BestEffort => 0,
            // LE, "lower effort".
            TrafficClass::Bulk => 1,
            // CS5, "signalling". Expedited forwarding is policed to the rates of telephony.
            TrafficClass::LowLatency => 40,
        }
    }
}

/// A 64-bit word in the peer's pool and its new value. Signals are words of pools: a rank that
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

// SAFETY: a plain address; its maker has promised what `Iovec::new` requires, for all threads.
unsafe impl Send for Iovec {}
// SAFETY: as above.
unsafe impl Sync for Iovec {}

impl Iovec {
    /// Names memory. Without bytes, `start` may be any address.
    ///
    /// # Safety
    /// Until each put with it is complete or cancelled, or its link has ended, `len` bytes from
    /// `start` on must stay readable. They must not be written, unless ordered after the put by a
    /// signal of the peer. Memory of a [registration](MemoryRegistration::register) must stay
    /// mapped at its address while the registration is made, and while puts name it. [Device
    /// memory](MemoryRegistration::register_device) need only be readable by adapters.
    pub unsafe fn new(start: *const u8, len: usize) -> Iovec {
        // Links make a slice of it, which must not begin at null even without bytes.
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

    /// The same memory, as part of what was [registered](MemoryRegistration::register) under this
    /// key.
    pub fn registered(self, key: RegistrationKey) -> Iovec {
        Iovec {
            registration: Some(key),
            ..self
        }
    }

    /// The key of its separate registration, if any.
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

/// Device memory as a file, through which an adapter accesses it without the processor (dma-buf).
#[derive(Clone, Copy, Debug)]
pub struct DmaBuf<'a> {
    /// The file. It may be closed once the memory is registered.
    pub file: BorrowedFd<'a>,
    /// The offset of the memory in the file, in bytes.
    pub offset: u64,
}

/// Memory that a link writes after the call that names it has returned.
#[derive(Clone, Copy, Debug)]
pub struct IovecMut {
    start: *mut u8,
    len: usize,
}

// SAFETY: a plain address; its maker has promised what `IovecMut::new` requires, for all threads.
unsafe impl Send for IovecMut {}
// SAFETY: as above.
unsafe impl Sync for IovecMut {}

impl IovecMut {
    /// Names memory.
    ///
    /// # Safety
    /// Until the operation with it is complete or cancelled, or its link has ended, `len` bytes
    /// from `start` on must stay writable, and nothing else may access them. For a redirection:
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

/// The state of an operation after its call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Submission {
    /// It is complete.
    Done,
    /// It is under way until [`Link::completed`] returns true.
    UnderWay(Ticket),
    /// The queue is full. The operation was not accepted: call again after some progress.
    Full,
}

/// A change of a 64-bit cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicOp {
    /// Adds, wrapping around.
    FetchAdd(u64),
    /// Stores the new value if the cell holds the expected one.
    CompareSwap {
        /// The value that the cell must hold.
        expected: u64,
        /// The value to store then.
        new: u64,
    },
}

/// Whether all queued data has been sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlushState {
    /// All of it.
    Done,
    /// Not all of it.
    Pending,
}

/// The known state of a link that is not in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Usable, as far as is known.
    Good,
    /// The peer's host has not acknowledged data in time: its line may be cut.
    Silent,
    /// It is no longer usable.
    Ended,
}

/// The traffic of a link since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrafficCounts {
    /// Bytes that the peer's host has acknowledged.
    pub sent_bytes: u64,
    /// Bytes received from the peer's host.
    pub received_bytes: u64,
    /// Packets that were retransmitted.
    pub retransmissions: u64,
    /// Bytes that wait to be sent, or to be acknowledged, now.
    pub queued_bytes: u64,
    /// The time since bytes last came from the peer's host.
    pub quiet: Duration,
    /// Connections that broke and were made anew.
    pub renewals: u64,
}

impl TrafficCounts {
    /// The traffic of two connections together.
    pub fn plus(self, other: TrafficCounts) -> TrafficCounts {
        TrafficCounts {
            sent_bytes: self.sent_bytes + other.sent_bytes,
            received_bytes: self.received_bytes + other.received_bytes,
            retransmissions: self.retransmissions + other.retransmissions,
            queued_bytes: self.queued_bytes + other.queued_bytes,
            quiet: self.quiet.min(other.quiet),
            renewals: self.renewals + other.renewals,
        }
    }
}

/// Receives the messages of a link.
pub trait Inbox {
    /// A control message.
    fn message(&mut self, bytes: &[u8]);
}

/// One of the streams of a link. Its operations take effect at the peer in the order of their
/// calls; there is no order between two streams.
pub trait Stream: Send + Sync {
    /// Stores a signal in the peer's pool. Queued if it cannot be sent immediately.
    ///
    /// # Errors
    /// If the link has ended, or the offset is not an aligned word of the pool.
    fn signal(&self, signal: Signal) -> Result<(), LinkError>;

    /// Like [`Stream::signal`], for a signal that may be late: it may stay queued until something
    /// else is sent over the stream, or until [`Link::flush_late`].
    ///
    /// # Errors
    /// As for [`Stream::signal`].
    fn signal_late(&self, signal: Signal) -> Result<(), LinkError> {
        self.signal(signal)
    }

    /// Writes at most [`INJECT_BYTES_MAX`] bytes into a region of the peer, then stores the signal.
    /// The bytes are copied: the caller may reuse them immediately. Queued if it cannot be sent
    /// immediately.
    ///
    /// # Errors
    /// If the link has ended, there are too many bytes, or the range is known to be outside the
    /// region.
    fn inject(
        &self,
        region: RegionKey,
        offset: u64,
        bytes: &[u8],
        signal: Option<Signal>,
    ) -> Result<(), LinkError>;

    /// Writes the pieces, one behind the other, into a region of the peer, then stores the signal.
    /// Several puts can be under way.
    ///
    /// # Errors
    /// If the link has ended, the range is known to be outside the region, or a piece is [not
    /// registered](LinkError::Unregistered) where that is needed.
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
/// The link is also its own ordinary stream, whose order includes gets, atomics and messages.
pub trait Link: Stream + LinkStatus {
    /// The stream for operations that overtake the ordinary stream's queue. The same stream where
    /// nothing is ever queued for long.
    fn urgent(&self) -> &dyn Stream;

    /// The number of the stream with the shortest queue; the ordinary stream's number is 0.
    fn emptiest_stream(&self) -> usize {
        0
    }

    /// The further streams of a link, besides its ordinary and urgent one, numbered from 1: other
    /// paths through the network, for large data. A message is ordered behind all earlier calls on
    /// any of them.
    fn further_stream(&self, _number: usize) -> Option<&dyn Stream> {
        None
    }

    /// The transport.
    fn kind(&self) -> TransportKind;

    /// Its capabilities: the same for all links of one kind.
    fn capabilities(&self) -> Capabilities;

    /// The endpoint at the other end.
    fn peer(&self) -> EndpointId;

    /// A region of the peer, mapped for loads and stores: the pool, and regions that were granted
    /// before a message that has arrived. The mapping outlives the link and the peer.
    fn memory(&self, region: RegionKey) -> Option<Arc<Segment>>;

    /// Whether an operation is complete. Its memory is not accessed any more after `Ok(true)`, nor
    /// after an error.
    ///
    /// # Errors
    /// If the operation will never be complete, as the link has ended before it was executed.
    fn completed(&self, ticket: Ticket) -> Result<bool, LinkError>;

    /// Whether an operation is complete, and its memory is not accessed any more even if nobody
    /// takes it back by [`Link::completed`], for which a link may have to copy it.
    fn released(&self, ticket: Ticket) -> bool {
        matches!(self.completed(ticket), Ok(true))
    }

    /// Cancels an operation that is under way: its memory is not accessed any more. The contents of
    /// a cancelled put's range are undefined, and its signal is not stored unless it was complete.
    fn cancel(&self, ticket: Ticket);

    /// Sends a control message of at most [`MESSAGE_BYTES_MAX`], and notifies the peer. Queued if
    /// it cannot be sent immediately.
    ///
    /// # Errors
    /// If the link has ended, or the message is too long.
    fn message(&self, bytes: &[u8]) -> Result<(), LinkError>;

    /// Sends a message of these pieces, like [`Link::message`], to a peer that polls for it: the
    /// peer is not notified unless it sleeps on its doorbell, but checks
    /// [`PolledMessages::has_polled_message`] while it waits for a message.
    ///
    /// # Errors
    /// As for [`Link::message`].
    fn polled_message(&self, pieces: &[&[u8]]) -> Result<(), LinkError> {
        self.message(&pieces.concat())
    }

    /// Sends queued data, puts included; `Pending` if some remains. Nothing is sent if only [late
    /// signals](Stream::signal_late) are queued.
    ///
    /// # Errors
    /// If the link has ended.
    fn flush(&self) -> Result<FlushState, LinkError>;

    /// Like [`Link::flush`], but sends late signals too.
    ///
    /// # Errors
    /// If the link has ended.
    fn flush_late(&self) -> Result<FlushState, LinkError> {
        self.flush()
    }

    /// The descriptor to watch for readability (and, while [`Link::flush`] is `Pending`, for
    /// writability), if any.
    fn descriptor(&self) -> Option<RawFd>;

    /// Whether, since the last call, the descriptor's file was replaced, or something happened that
    /// the descriptor does not show: watch it anew, and call [`Link::receive`]. A link [notifies
    /// its doorbell](crate::Doorbell::notify) of it. The descriptor keeps its number.
    fn take_change(&self) -> bool {
        false
    }

    /// Receives everything that has arrived, without blocking. After an error the link is unusable.
    ///
    /// # Errors
    /// How the link has ended.
    fn receive(&self, inbox: &mut dyn Inbox) -> Result<(), LinkError>;

    /// Grants the peer access to this range of a local region. Where the transport maps, the peer
    /// maps all of the region.
    ///
    /// # Errors
    /// If the link has ended, or the region cannot be registered or passed to the peer.
    fn grant(&self, region: RegionKey, range: Range<u64>) -> Result<(), LinkError>;

    /// Revokes a grant. A link that checks accesses drops later writes silently (they are late, not
    /// hostile).
    fn revoke(&self, region: RegionKey, range: Range<u64>);

    /// Cancels operations under way, sends a goodbye behind the queued data, and closes.
    /// Idempotent.
    fn close(&self);

    /// Its gets, if it supports them.
    fn reads(&self) -> Option<&dyn RemoteReads> {
        None
    }

    /// Its atomics, if it supports them.
    fn atomics(&self) -> Option<&dyn RemoteAtomics> {
        None
    }

    /// Its redirections, if it supports them.
    fn redirections(&self) -> Option<&dyn Redirections> {
        None
    }

    /// The interface for its polled messages, if they are stored apart from the others.
    fn polled_messages(self: Arc<Self>) -> Option<Arc<dyn PolledMessages>> {
        None
    }
}

/// The state of a link and of its peer.
pub trait LinkStatus {
    /// The peer's presence, for callers that wait for it.
    fn presence(&self) -> Presence;

    /// The link's usability, for a caller that could also make another link. Costs a system call
    /// where the peer is on another host.
    fn standing(&self) -> Standing {
        Standing::Good
    }

    /// Whether the peer has provably ended: it accesses nothing any more. The end of a link alone
    /// does not prove that.
    fn peer_has_ended(&self) -> bool {
        false
    }

    /// The traffic of the link, where the network counts it.
    fn traffic(&self) -> Option<TrafficCounts> {
        None
    }
}

/// Links that read the peer's memory.
pub trait RemoteReads {
    /// Reads from a region of the peer.
    ///
    /// # Errors
    /// As for [`Stream::put`].
    fn get(&self, region: RegionKey, offset: u64, into: IovecMut) -> Result<Submission, LinkError>;
}

/// Links that change cells of the peer's memory and return their former values.
pub trait RemoteAtomics {
    /// Changes a cell of the peer, at a multiple of 8, and returns its former value, as eight bytes
    /// in `into`.
    ///
    /// # Errors
    /// As for [`Stream::put`], and if the cell or `into` does not have eight bytes at a multiple of
    /// 8.
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

    /// Receives the polled messages that are in memory, and everything sent between them. Like
    /// [`Link::receive`], but may fail to detect the link's end.
    ///
    /// # Errors
    /// As for [`Link::receive`].
    fn take_polled_message(&self, inbox: &mut dyn Inbox) -> Result<(), LinkError>;
}

/// Links that copy received bytes themselves, and so can write them elsewhere.
pub trait Redirections {
    /// Writes the data of later puts for a place in a local region to other memory instead, until
    /// the redirection is [taken back](Redirections::take_back). The place begins at `offset` and
    /// is as long as the memory; places of one link must not overlap. The peer's grants stay as
    /// they are.
    fn redirect(&self, region: RegionKey, offset: u64, into: IovecMut) -> Redirection;

    /// Ends a redirection, also one of a link that has ended: its memory is not accessed any more.
    /// Returns the parts of the place, in any order, whose last bytes are in that memory; the
    /// others are in the region.
    fn take_back(&self, redirection: Redirection) -> Vec<Range<u64>>;

    /// Notes that this many bytes were copied from their place as puts of the memory where they
    /// belong were not [released](Link::released).
    fn note_copied(&self, bytes: u64);
}

/// Decides about incoming connections and receives the resulting links.
pub trait LinkEvents: Send + Sync {
    /// Whether to accept a connection from this authenticated peer. `false` when this endpoint is
    /// connecting to the same peer at the same moment and its own attempt should win, or when it
    /// has a link already.
    fn accept(&self, peer: EndpointId) -> bool;

    /// A connection that was accepted is ready.
    fn connected(&self, link: Arc<dyn Link>);

    /// An accepted connection has failed. Called once for each.
    fn failed(&self, _peer: EndpointId) {}

    /// Callers are waiting without result, as this process has no descriptor left for another
    /// connection. Called repeatedly while that lasts.
    fn exhausted(&self) {}

    /// A connection of a link to this peer was made anew, this long after it broke, for this
    /// reason. Nothing was lost. Must not call the link.
    fn renewed(&self, _peer: EndpointId, _after: Duration, _why: &str) {}
}

/// Makes links of one kind for one endpoint.
pub trait Transport: Send + Sync {
    /// The kind of its links.
    fn kind(&self) -> TransportKind;

    /// The capabilities of its links.
    fn capabilities(&self) -> Capabilities;

    /// The information that a peer needs to connect here: published at the rendezvous, opaque to
    /// all others.
    fn address(&self) -> Vec<u8>;

    /// Makes memory a region, which links can [grant](Link::grant), and can use as local memory
    /// where they need registration.
    ///
    /// # Errors
    /// If the system or a device refuses to register it.
    fn expose(&self, segment: &Arc<Segment>) -> Result<RegionKey, LinkError>;

    /// Withdraws a region. Peers cannot access it any more by operations on links, and drop their
    /// mapping of it; a caller that has [obtained the mapping](Link::memory) keeps it until it is
    /// dropped.
    fn withdraw(&self, region: RegionKey);

    /// Its registration of memory beside regions, where its links need that.
    fn registration(self: Arc<Self>) -> Option<Arc<dyn MemoryRegistration>> {
        None
    }

    /// Starts accepting connections, on a thread of its own, until [`Transport::close`].
    ///
    /// # Errors
    /// If the transport listens already, is closed, or cannot bind or start a thread.
    fn listen(&self, events: Arc<dyn LinkEvents>) -> Result<(), LinkError>;

    /// Admits connections of the endpoint with this address from now on. A transport that
    /// authenticates callers by a shared token admits every caller that knows it.
    ///
    /// # Errors
    /// If the address is malformed.
    fn admit(&self, _peer: EndpointId, _address: &[u8]) -> Result<(), LinkError> {
        Ok(())
    }

    /// The name of the cipher that encrypts all data on links to the endpoint with this address;
    /// None without encryption.
    fn cipher(&self, _address: &[u8]) -> Option<&'static str> {
        None
    }

    /// Connects to the endpoint with this address, which must have [admitted](Transport::admit)
    /// this one; it may do so later. Blocks until the connection is made, refused, timed out at the
    /// deadline, or cancelled (within 50 ms). `Ok(None)`: the peer answered that its own attempt to
    /// connect here should win; wait for it.
    ///
    /// # Errors
    /// [`LinkError::Absent`], [`LinkError::Refused`] or [`LinkError::OtherUser`] if the peer cannot
    /// be connected to; [`LinkError::TimedOut`] or [`LinkError::Cancelled`] at the end of the wait;
    /// or the failure of the connection.
    fn connect(
        &self,
        peer: EndpointId,
        address: &[u8],
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<Option<Arc<dyn Link>>, LinkError>;

    /// Stops listening until [`Transport::listen`] is called again, which may change the address;
    /// links stay open. Returns false if it continues to listen, as transports do that strangers
    /// cannot reach.
    fn rest(&self) -> bool {
        false
    }

    /// Stops listening. Links stay open.
    fn close(&self);

    /// Waits until the goodbyes of all closed links are sent and received, at most for the timeout.
    /// A process that ended immediately would discard them, and its peers would detect a death.
    fn drain(&self, _timeout: Duration) {}
}

/// Transports whose links [need registration](Capabilities::needs_registration).
pub trait MemoryRegistration: Transport {
    /// Registers memory of this process as a source for puts that [name it](Iovec::registered),
    /// until [`MemoryRegistration::deregister`].
    ///
    /// # Errors
    /// If a device refuses to register it, for example beyond the limit of locked memory.
    fn register(&self, memory: Iovec) -> Result<RegistrationKey, LinkError>;

    /// Registers device memory, at an address that nothing else in this process has. It is read
    /// through that file, and never by the processor.
    ///
    /// # Errors
    /// The device's reason, if it does not support that.
    fn register_device(
        &self,
        memory: Iovec,
        file: DmaBuf<'_>,
    ) -> Result<RegistrationKey, LinkError>;

    /// Ends a registration of either kind. No put that names it may be under way. Has no effect in
    /// a forked child.
    fn deregister(&self, key: RegistrationKey);
}
