//! One connection as a link.

use std::io;
use std::net::Shutdown;
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use weft_transport::{
    Capabilities, Doorbell, EndpointId, FlushState, INJECT_BYTES_MAX, Inbox, Iovec, Link,
    LinkError, Liveness, Local, MESSAGE_BYTES_MAX, Presence, RegionKey, Regions, Segment, Signal,
    Stream, Submission, Ticket, TrafficCounts, TransportKind,
};

use crate::closing;
use crate::frame::{self, Frame};
use crate::incoming::{ReceiveProgress, TcpIncoming};
use crate::outgoing::{CLASSES, Class, TcpOutgoing};
use crate::socket::Socket;

/// What links over TCP can do.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    maps: false,
    get: false,
    atomics: false,
    needs_registration: false,
    manual_progress: true,
    liveness: Liveness::Presumed,
};

/// A call to `receive` stops after about this much, so that other links get their turn.
const RECEIVED_BYTES_MAX: usize = 2 << 20;

/// How a link ended.
#[derive(Clone, Debug)]
enum Fate {
    Closed,
    Left,
    Gone(String),
    Protocol(String),
}

impl Fate {
    fn error(&self) -> LinkError {
        match self {
            Fate::Closed => LinkError::Left,
            Fate::Left => LinkError::Left,
            Fate::Gone(why) => LinkError::Gone(why.clone()),
            Fate::Protocol(what) => LinkError::Protocol(what.clone()),
        }
    }
}

/// What the link shares with the caretaker.
#[derive(Debug)]
pub(crate) struct TcpConnection {
    pub(crate) socket: Socket,
    fate: Mutex<Option<Fate>>,
}

impl TcpConnection {
    /// Ends the connection because the peer's host vanished.
    pub(crate) fn vanished(&self, why: String) {
        self.end(Fate::Gone(why));
    }

    /// The first reason to end counts.
    fn end(&self, fate: Fate) {
        let mut ended = lock(&self.fate);
        if ended.is_none() {
            if matches!(fate, Fate::Gone(_) | Fate::Protocol(_)) {
                self.socket.shutdown(Shutdown::Both);
            }
            *ended = Some(fate);
        }
    }

    fn check(&self) -> Result<(), LinkError> {
        match &*lock(&self.fate) {
            None => Ok(()),
            Some(fate) => Err(fate.error()),
        }
    }
}

/// A link over TCP.
///
/// Lock order: `turn`, then `outgoing`, then `incoming`, then the connection's fate. No lock but
/// `turn` is held while an inbox is called.
pub(crate) struct TcpLink {
    peer: EndpointId,
    doorbell: Arc<Doorbell>,
    connection: Arc<TcpConnection>,
    /// As it was when the connection was made: later ones are of a line that is in use.
    round_trip: Duration,
    outgoing: Mutex<TcpOutgoing>,
    /// By class: the lowest ticket that is under way, or the next one there will be.
    first_under_way: [AtomicU64; CLASSES.len()],
    urgent: Urgent,
    incoming: Mutex<TcpIncoming>,
    /// Held by the thread that receives, so that messages are delivered in order.
    turn: Mutex<()>,
    closed: AtomicBool,
}

impl TcpLink {
    /// A link over a connection whose handshake is done.
    pub(crate) fn new(
        local: &Local,
        regions: &Arc<Regions>,
        peer: EndpointId,
        socket: Socket,
        peer_timeout: Duration,
    ) -> Arc<Self> {
        let connection = Arc::new(TcpConnection {
            socket,
            fate: Mutex::new(None),
        });
        closing::watch(&connection, peer_timeout);
        Arc::new_cyclic(|link| Self {
            peer,
            doorbell: local.doorbell.clone(),
            round_trip: connection.socket.round_trip(),
            connection,
            outgoing: Mutex::default(),
            first_under_way: CLASSES.map(|class| AtomicU64::new(class.ticket(1).0)),
            urgent: Urgent { link: link.clone() },
            incoming: Mutex::new(TcpIncoming::new(regions.clone())),
            turn: Mutex::new(()),
            closed: AtomicBool::new(false),
        })
    }

    /// Runs something that sends, if the link is good. Where sending fails, finds out what became
    /// of the peer.
    fn sending<T>(
        &self,
        action: impl FnOnce(
            &mut TcpOutgoing,
            &mut dyn FnMut(&[io::IoSlice<'_>]) -> io::Result<usize>,
        ) -> io::Result<T>,
    ) -> Result<T, LinkError> {
        let mut outgoing = lock(&self.outgoing);
        self.connection.check()?;
        let mut send = |slices: &[io::IoSlice<'_>]| self.connection.socket.send(slices);
        let result = action(&mut outgoing, &mut send);
        for class in CLASSES {
            let first = outgoing.first_under_way(class);
            self.first_under_way[class as usize].store(first.0, Ordering::Release);
        }
        result.map_err(|error| self.explain(error))
    }

    /// After sending failed: what was received before may hold a goodbye, and then the peer left
    /// rather than died.
    fn explain(&self, error: io::Error) -> LinkError {
        let mut incoming = lock(&self.incoming);
        loop {
            match incoming.step(&mut self.connection.socket.reader()) {
                Ok(ReceiveProgress::Drained(0)) => {
                    self.connection.end(Fate::Gone(error.to_string()));
                    break;
                }
                Ok(_) => {}
                Err(error) => {
                    self.connection.end(fate_of(error));
                    break;
                }
            }
        }
        if std::mem::take(&mut incoming.signalled) {
            self.doorbell.ring();
        }
        match self.connection.check() {
            Err(error) => error,
            Ok(()) => error.into(),
        }
    }

    /// Takes in what has arrived, up to a message or for as long as the budget lasts.
    fn take_in(&self, budget: &mut usize) -> Result<Taken, LinkError> {
        let mut incoming = lock(&self.incoming);
        loop {
            if let Some(message) = incoming.messages.pop_front() {
                return Ok(Taken::Message(message));
            }
            self.connection.check()?;
            let step = incoming.step(&mut self.connection.socket.reader());
            if std::mem::take(&mut incoming.signalled) {
                self.doorbell.ring();
            }
            match step {
                Ok(ReceiveProgress::Message) => {}
                Ok(ReceiveProgress::Drained(_)) => return Ok(Taken::Everything),
                Ok(ReceiveProgress::Read(bytes)) => {
                    *budget = budget.saturating_sub(bytes);
                    if *budget == 0 {
                        return Ok(Taken::Everything);
                    }
                }
                Err(error) => self.connection.end(fate_of(error)),
            }
        }
    }
}

/// What [`TcpLink::take_in`] found.
enum Taken {
    Message(Vec<u8>),
    /// All there is for now, or all that is due in one call.
    Everything,
}

fn fate_of(error: LinkError) -> Fate {
    match error {
        LinkError::Left => Fate::Left,
        LinkError::Protocol(what) => Fate::Protocol(what),
        LinkError::Gone(why) => Fate::Gone(why),
        other => Fate::Gone(other.to_string()),
    }
}

/// Operations of a class.
impl TcpLink {
    fn signal_late_in(&self, class: Class, signal: Signal) -> Result<(), LinkError> {
        check_signal(signal)?;
        self.connection.check()?;
        lock(&self.outgoing).late(class, &Frame::Signal(signal));
        Ok(())
    }

    fn signal_in(&self, class: Class, signal: Signal) -> Result<(), LinkError> {
        check_signal(signal)?;
        self.sending(|outgoing, send| outgoing.frame(class, &Frame::Signal(signal), &[], send))
    }

    fn inject_in(
        &self,
        class: Class,
        region: RegionKey,
        offset: u64,
        bytes: &[u8],
        signal: Option<Signal>,
    ) -> Result<(), LinkError> {
        if bytes.len() > INJECT_BYTES_MAX {
            return Err(invalid("more bytes than can be injected"));
        }
        let len = bytes.len() as u64;
        check_put(region, offset, len, signal)?;
        match (len, signal) {
            (0, None) => self.connection.check(),
            (0, Some(signal)) => self.signal_in(class, signal),
            _ => {
                let frame = Frame::put(region, offset..offset + len, signal);
                self.sending(|outgoing, send| outgoing.frame(class, &frame, bytes, send))
            }
        }
    }

    fn put_in(
        &self,
        class: Class,
        region: RegionKey,
        offset: u64,
        pieces: &[Iovec],
        signal: Option<Signal>,
    ) -> Result<Submission, LinkError> {
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        check_put(region, offset, len, signal)?;
        if len == 0 {
            let injected = self.inject_in(class, region, offset, &[], signal);
            return injected.map(|()| Submission::Done);
        }
        self.sending(|outgoing, send| outgoing.put(class, (region, offset), pieces, signal, send))
    }
}

/// A link's urgent stream.
struct Urgent {
    link: Weak<TcpLink>,
}

impl Urgent {
    fn link(&self) -> Result<Arc<TcpLink>, LinkError> {
        // There while the stream is: it is part of the link.
        self.link.upgrade().ok_or(LinkError::Left)
    }
}

impl Stream for Urgent {
    fn signal(&self, signal: Signal) -> Result<(), LinkError> {
        self.link()?.signal_in(Class::Urgent, signal)
    }

    fn signal_late(&self, signal: Signal) -> Result<(), LinkError> {
        self.link()?.signal_late_in(Class::Urgent, signal)
    }

    fn inject(
        &self,
        region: RegionKey,
        offset: u64,
        bytes: &[u8],
        signal: Option<Signal>,
    ) -> Result<(), LinkError> {
        self.link()?
            .inject_in(Class::Urgent, region, offset, bytes, signal)
    }

    fn put(
        &self,
        region: RegionKey,
        offset: u64,
        pieces: &[Iovec],
        signal: Option<Signal>,
    ) -> Result<Submission, LinkError> {
        self.link()?
            .put_in(Class::Urgent, region, offset, pieces, signal)
    }
}

impl Stream for TcpLink {
    fn signal(&self, signal: Signal) -> Result<(), LinkError> {
        self.signal_in(Class::Ordinary, signal)
    }

    fn signal_late(&self, signal: Signal) -> Result<(), LinkError> {
        self.signal_late_in(Class::Ordinary, signal)
    }

    fn inject(
        &self,
        region: RegionKey,
        offset: u64,
        bytes: &[u8],
        signal: Option<Signal>,
    ) -> Result<(), LinkError> {
        self.inject_in(Class::Ordinary, region, offset, bytes, signal)
    }

    fn put(
        &self,
        region: RegionKey,
        offset: u64,
        pieces: &[Iovec],
        signal: Option<Signal>,
    ) -> Result<Submission, LinkError> {
        self.put_in(Class::Ordinary, region, offset, pieces, signal)
    }
}

impl Link for TcpLink {
    fn urgent(&self) -> &dyn Stream {
        &self.urgent
    }

    fn kind(&self) -> TransportKind {
        TransportKind::Tcp
    }

    fn peer(&self) -> EndpointId {
        self.peer
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn presence(&self) -> Presence {
        Presence::Unknown {
            round_trip: self.round_trip,
        }
    }

    fn memory(&self, _region: RegionKey) -> Option<Arc<Segment>> {
        None
    }

    fn completed(&self, ticket: Ticket) -> Result<bool, LinkError> {
        let first = &self.first_under_way[Class::of(ticket) as usize];
        if ticket.0 < first.load(Ordering::Acquire) {
            return Ok(true);
        }
        self.connection.check().map(|()| false).inspect_err(|_| {
            // Whoever was sending when the link ended has stopped when it lets go of this.
            drop(lock(&self.outgoing));
        })
    }

    fn cancel(&self, ticket: Ticket) {
        lock(&self.outgoing).cancel(ticket);
    }

    fn message(&self, bytes: &[u8]) -> Result<(), LinkError> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(invalid("a message of more than 64 KiB"));
        }
        let frame = Frame::Message { bytes: bytes.len() };
        self.sending(|outgoing, send| outgoing.frame(Class::Ordinary, &frame, bytes, send))
    }

    fn flush(&self) -> Result<FlushState, LinkError> {
        self.sending(|outgoing, send| match outgoing.is_due() {
            true => outgoing.flush(send),
            false => Ok(FlushState::Done),
        })
    }

    fn flush_late(&self) -> Result<FlushState, LinkError> {
        self.sending(|outgoing, send| outgoing.flush(send))
    }

    fn traffic(&self) -> Option<TrafficCounts> {
        self.connection.socket.traffic()
    }

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.connection.socket.descriptor())
    }

    fn receive(&self, inbox: &mut dyn Inbox) -> Result<(), LinkError> {
        // Whoever holds the turn takes everything in; an inbox that calls back here finds it held
        // by itself.
        let Ok(_turn) = self.turn.try_lock() else {
            return Ok(());
        };
        let mut budget = RECEIVED_BYTES_MAX;
        while let Taken::Message(message) = self.take_in(&mut budget)? {
            inbox.message(&message);
        }
        Ok(())
    }

    fn grant(&self, region: RegionKey, range: Range<u64>) -> Result<(), LinkError> {
        lock(&self.incoming).grant(region, range);
        Ok(())
    }

    fn revoke(&self, region: RegionKey, range: Range<u64>) {
        lock(&self.incoming).revoke(region, range);
    }

    fn close(&self) {
        if self.closed.swap(true, Ordering::SeqCst) {
            return;
        }
        let mut outgoing = lock(&self.outgoing);
        let alive = match &*lock(&self.connection.fate) {
            None | Some(Fate::Left) => true,
            Some(Fate::Closed | Fate::Gone(_) | Fate::Protocol(_)) => false,
        };
        self.connection.end(Fate::Closed);
        if alive {
            closing::say_goodbye(self.connection.clone(), std::mem::take(&mut *outgoing));
        }
    }
}

impl Drop for TcpLink {
    /// Without a goodbye, the peer is to see an end that is none.
    fn drop(&mut self) {
        if !self.closed.load(Ordering::SeqCst) {
            self.connection.socket.shutdown(Shutdown::Both);
        }
    }
}

fn check_put(
    region: RegionKey,
    offset: u64,
    len: u64,
    signal: Option<Signal>,
) -> Result<(), LinkError> {
    if offset.checked_add(len).is_none() || !frame::is_named(region) {
        return Err(invalid("the put reaches beyond all memory"));
    }
    signal.map_or(Ok(()), check_signal)
}

fn check_signal(signal: Signal) -> Result<(), LinkError> {
    if signal.offset.is_multiple_of(8) {
        return Ok(());
    }
    Err(invalid("a signal's offset must be a multiple of 8"))
}

fn invalid(what: &'static str) -> LinkError {
    LinkError::Io(io::Error::new(io::ErrorKind::InvalidInput, what))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
