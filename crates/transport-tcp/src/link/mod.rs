//! A link: one connection or several, with their outgoing and incoming halves.
//!
//! The first connection carries messages, urgent operations, and operations without a chosen
//! stream. Each further one is a stream of its own. [Note: Fences] A message is delivered after
//! everything that was called before it, on all connections: before it, the first connection
//! carries a fence for every connection that was used since the last fence, and the receiver stops
//! reading the first connection until the others have reached those positions.

use std::io;
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use weft_transport::{
    Capabilities, EndpointId, FlushState, INJECT_BYTES_MAX, Inbox, Iovec, IovecMut, Link,
    LinkError, LinkStatus, Local, MESSAGE_BYTES_MAX, Presence, Redirection, Redirections,
    RegionKey, Regions, Segment, Signal, Standing, Stream, Submission, Ticket, TrafficCounts,
    TransportKind,
};

use crate::broken::broken_by;
use crate::carrier::Carrier;
use crate::class::{self, Class};
use crate::closing;
use crate::connection::Renewal;
use crate::connection::{ConnectionEnd, TcpConnection};
use crate::frame::{self, Frame};
use crate::incoming::ReceiveProgress;
use crate::lock::lock;
use crate::outgoing::{CONFIRMED_ALONE_BYTES, CONFIRMED_BYTES, Send, TcpOutgoing};
use crate::resumption::Resumption;
use crate::socket::Socket;

/// The capabilities of links over TCP.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    maps: false,
    needs_registration: false,
    manual_progress: true,
};

/// A call to `receive` stops after about this many bytes, so that other links get their turn.
const RECEIVED_BYTES_MAX: usize = 2 << 20;

/// A stream: operations of one class over one connection of the link.
pub(crate) struct NumberedStream {
    pub(crate) link: Weak<TcpLink>,
    pub(crate) place: (usize, Class),
}

impl NumberedStream {
    pub(crate) fn new(link: Weak<TcpLink>, connection: usize, class: Class) -> Self {
        Self {
            link,
            place: (connection, class),
        }
    }
}

/// A link over TCP.
///
/// Lock order: `turn`, then an `outgoing`, then an `incoming`, of several always the first
/// connection's last, then the connection's end. No lock but `turn` is held while an inbox is
/// called.
pub(crate) struct TcpLink {
    peer: EndpointId,
    connection: Arc<TcpConnection>,
    /// As measured when the connection was made: later measurements would include queueing.
    round_trip: Duration,
    /// The streams by their numbers, from 1; the urgent one is last.
    streams: Vec<NumberedStream>,
    /// The start of the search for the emptiest stream, which rotates among equal ones.
    next_stream: AtomicUsize,
    /// The number of redirections so far.
    redirections: AtomicU64,
    resumption: Resumption,
    /// Held by the thread that receives, so that messages are delivered in order.
    turn: Mutex<()>,
    closed: AtomicBool,
}

impl TcpLink {
    /// A link over connections whose handshakes are done. There is at least one. With a renewal, a
    /// connection that breaks is made anew.
    pub(crate) fn new(
        local: &Local,
        regions: &Arc<Regions>,
        peer: EndpointId,
        sockets: Vec<Socket>,
        peer_timeout: Duration,
        (resumption, renewal): (Resumption, Option<Renewal>),
    ) -> io::Result<Arc<Self>> {
        let count = sockets.len();
        let several = renewal.as_ref().is_some_and(Renewal::has_rails);
        let resumption = resumption.for_networks(several);
        let carrier = |number| Carrier::new(number, count, regions.clone(), resumption);
        let carriers = (0..count).map(carrier).collect();
        let name = (renewal.as_ref()).map(|renewal| (renewal.known.clone(), renewal.call));
        let doorbell = local.doorbell.clone();
        let connection = TcpConnection::new(sockets, carriers, doorbell, renewal)?;
        let connection = Arc::new(connection);
        if let Some((known, call)) = name {
            known.add((peer, call), &connection);
        }
        closing::watch(&connection, peer_timeout);
        Ok(Arc::new_cyclic(|link| Self {
            peer,
            round_trip: connection.sockets[0].round_trip(),
            connection,
            streams: (1..count)
                .map(|number| NumberedStream::new(link.clone(), number, Class::Ordinary))
                .chain([NumberedStream::new(link.clone(), 0, Class::Urgent)])
                .collect(),
            next_stream: AtomicUsize::new(0),
            redirections: AtomicU64::new(0),
            resumption,
            turn: Mutex::new(()),
            closed: AtomicBool::new(false),
        }))
    }

    fn carriers(&self) -> &[Carrier] {
        &self.connection.carriers
    }

    /// Runs an action that sends a frame over one of the connections.
    fn sending<T>(
        &self,
        number: usize,
        action: impl FnOnce(&mut TcpOutgoing, Send<'_>) -> io::Result<T>,
    ) -> Result<T, LinkError> {
        self.sending_and_confirming(number, CONFIRMED_BYTES, action)
    }

    /// Runs an action that sends over one of the connections, if the link is usable, after a
    /// confirmation of `least` bytes or more. If sending fails, determines how the peer ended.
    fn sending_and_confirming<T>(
        &self,
        number: usize,
        least: u64,
        action: impl FnOnce(&mut TcpOutgoing, Send<'_>) -> io::Result<T>,
    ) -> Result<T, LinkError> {
        let carrier = &self.carriers()[number];
        let mut outgoing = lock(&carrier.outgoing);
        self.connection.check()?;
        self.note_confirmed(carrier, &mut outgoing)?;
        if self.resumption.keeps() {
            outgoing.confirm(carrier.arrived.load(Ordering::Acquire), least);
        }
        let mut send = |slices: &[io::IoSlice<'_>]| self.connection.send(number, slices);
        let result = action(&mut outgoing, &mut send);
        carrier.publish(&outgoing);
        result.map_err(|error| self.explain(error))
    }

    /// Drops what the peer has confirmed.
    fn note_confirmed(
        &self,
        carrier: &Carrier,
        outgoing: &mut TcpOutgoing,
    ) -> Result<(), LinkError> {
        let taken = carrier.taken.load(Ordering::Acquire);
        if taken <= outgoing.kept().confirmed() {
            return Ok(());
        }
        (outgoing.kept().confirm(taken)).map_err(|what| {
            let error = LinkError::Protocol(what.into());
            self.connection
                .end(ConnectionEnd::from(LinkError::Protocol(what.into())));
            error
        })
    }

    /// Ends the reading of the memory of a put that is sent.
    fn give_back(&self, carrier: &Carrier, ticket: Ticket) {
        let mut outgoing = lock(&carrier.outgoing);
        // An error is reported by the next operation.
        let _ = self.note_confirmed(carrier, &mut outgoing);
        outgoing.kept().give_back(ticket);
        carrier.publish(&outgoing);
    }

    /// Called after a failure of sending: received data may hold a goodbye, and then the peer left
    /// rather than died.
    fn explain(&self, error: io::Error) -> LinkError {
        for (number, carrier) in self.carriers().iter().enumerate().rev() {
            let mut incoming = lock(&carrier.incoming);
            let mut reader = self.connection.sockets[number].reader();
            loop {
                match incoming.step(&mut reader) {
                    Ok(ReceiveProgress::Drained(0)) => break,
                    Ok(_) => {}
                    Err(LinkError::Left) if number > 0 => break,
                    Err(error) => {
                        self.connection.end(error.into());
                        break;
                    }
                }
            }
            carrier.note_received(&incoming);
            if std::mem::take(&mut incoming.signalled) {
                self.connection.doorbell.ring();
            }
        }
        self.connection.end(ConnectionEnd::Gone(broken_by(&error)));
        match self.connection.check() {
            Err(error) => error,
            Ok(()) => error.into(),
        }
    }

    /// Receives from a connection, up to a message or until the budget is used up.
    fn receive_from(&self, number: usize, budget: &mut usize) -> Result<Intake, LinkError> {
        let carrier = &self.carriers()[number];
        let socket = &self.connection.sockets[number];
        let mut incoming = lock(&carrier.incoming);
        // Set when the budget is used up: data that was already read from the socket must still be
        // processed, as no event would report it again.
        let mut over = false;
        loop {
            if let Some(message) = incoming.messages.pop_front() {
                if self.is_due(&message.behind) {
                    return Ok(Intake::Message(message.bytes));
                }
                // Nothing may overtake it.
                incoming.messages.push_front(message);
                self.connection.end_if_broken();
                return self.connection.check().map(|()| Intake::Everything);
            }
            // The first connection's messages were delivered.
            if number == 0 && self.connection.has_left() {
                self.connection.end_if_broken();
                self.connection.end(ConnectionEnd::Left);
            }
            self.connection.check()?;
            if carrier.has_left() || carrier.is_broken() {
                return Ok(Intake::Everything);
            }
            let step = match over {
                false => incoming.step(&mut socket.reader()),
                true => match socket.received() {
                    Some(mut received) => incoming.step(&mut received),
                    None => return Ok(Intake::Everything),
                },
            };
            carrier.note_received(&incoming);
            if std::mem::take(&mut incoming.signalled) {
                self.connection.doorbell.ring();
            }
            match step {
                Ok(ReceiveProgress::Message) => {}
                Ok(ReceiveProgress::Drained(_)) => {
                    if number == 0 && !over {
                        self.connection.end_if_broken();
                    }
                    return self.connection.check().map(|()| Intake::Everything);
                }
                Ok(ReceiveProgress::Read(bytes)) => {
                    *budget = budget.saturating_sub(bytes);
                    over = *budget == 0;
                }
                Err(LinkError::Left) => carrier.left.store(true, Ordering::Relaxed),
                Err(LinkError::Io(error)) if self.connection.interrupt_by(number, &error) => {}
                Err(error) => self.end_connection(number, error.into()),
            }
        }
    }

    /// Ends the link after the failure of a connection.
    fn end_connection(&self, number: usize, end: ConnectionEnd) {
        match end {
            ConnectionEnd::Gone(why) if number > 0 => {
                // Data of the first connection must still be received.
                self.carriers()[number].left.store(true, Ordering::Relaxed);
                self.connection.note_broken(why);
            }
            end => self.connection.end(end),
        }
    }

    /// Whether the other connections have reached the positions of a message's fences.
    fn is_due(&self, behind: &[u64]) -> bool {
        let others = self.carriers()[1..].iter();
        others
            .zip(behind)
            .all(|(carrier, position)| carrier.arrived.load(Ordering::Acquire) >= *position)
    }

    /// Queues fences for the queued data of the other connections.
    fn fence(&self) -> Result<(), LinkError> {
        for (number, carrier) in self.carriers().iter().enumerate().skip(1) {
            let position = lock(&carrier.outgoing).position();
            if carrier.fenced.swap(position, Ordering::Relaxed) != position {
                let fence = Frame::Fence {
                    connection: number as u32,
                    position,
                };
                self.sending(0, |outgoing, send| {
                    outgoing.frame(Class::Ordinary, &fence, &[], send)
                })?;
            }
        }
        Ok(())
    }

    /// Sends queued data of connections for which `due` holds.
    fn flush_all(&self, due: impl Fn(&TcpOutgoing) -> bool) -> Result<FlushState, LinkError> {
        let mut state = FlushState::Done;
        for number in 0..self.carriers().len() {
            let flush = |outgoing: &mut TcpOutgoing, send: Send<'_>| match due(outgoing) {
                true => outgoing.flush(send),
                false => Ok(FlushState::Done),
            };
            let flushed = self.sending_and_confirming(number, CONFIRMED_ALONE_BYTES, flush)?;
            self.watch_writability(number, flushed)?;
            if flushed == FlushState::Pending {
                state = FlushState::Pending;
            }
        }
        Ok(state)
    }

    fn watch_writability(&self, number: usize, flushed: FlushState) -> Result<(), LinkError> {
        let Some(watched) = &self.connection.watched else {
            return Ok(());
        };
        let carrier = &self.carriers()[number];
        let writing = flushed == FlushState::Pending;
        if !carrier.is_broken() && carrier.writing.swap(writing, Ordering::Relaxed) != writing {
            watched.set_writing(self.connection.sockets[number].descriptor(), writing)?;
        }
        Ok(())
    }
}

/// The result of [`TcpLink::receive_from`].
enum Intake {
    Message(Vec<u8>),
    /// No more data for now, or the budget is used up.
    Everything,
}

/// Operations of a stream: of one class, over one connection.
impl TcpLink {
    pub(crate) fn signal_late_in(
        &self,
        (number, class): (usize, Class),
        signal: Signal,
    ) -> Result<(), LinkError> {
        check_signal(signal)?;
        self.connection.check()?;
        lock(&self.carriers()[number].outgoing).late(class, &Frame::Signal(signal));
        Ok(())
    }

    pub(crate) fn signal_in(
        &self,
        (number, class): (usize, Class),
        signal: Signal,
    ) -> Result<(), LinkError> {
        check_signal(signal)?;
        let frame = Frame::Signal(signal);
        self.sending(number, |outgoing, send| {
            outgoing.frame(class, &frame, &[], send)
        })
    }

    pub(crate) fn inject_in(
        &self,
        (number, class): (usize, Class),
        region: RegionKey,
        offset: u64,
        bytes: &[u8],
        signal: Option<Signal>,
    ) -> Result<(), LinkError> {
        if bytes.len() > INJECT_BYTES_MAX {
            return Err(invalid("more bytes than can be injected (256)"));
        }
        let len = bytes.len() as u64;
        check_put(region, offset, len, signal)?;
        match (len, signal) {
            (0, None) => self.connection.check(),
            (0, Some(signal)) => self.signal_in((number, class), signal),
            _ => {
                let frame = Frame::put(region, offset..offset + len, signal);
                self.sending(number, |outgoing, send| {
                    outgoing.frame(class, &frame, bytes, send)
                })
            }
        }
    }

    pub(crate) fn put_in(
        &self,
        (number, class): (usize, Class),
        region: RegionKey,
        offset: u64,
        pieces: &[Iovec],
        signal: Option<Signal>,
    ) -> Result<Submission, LinkError> {
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        check_put(region, offset, len, signal)?;
        if len == 0 {
            let injected = self.inject_in((number, class), region, offset, &[], signal);
            return injected.map(|()| Submission::Done);
        }
        let place = (region, offset);
        self.sending(number, |outgoing, send| {
            outgoing.put(class, place, pieces, signal, send)
        })
    }
}

const ORDINARY: (usize, Class) = (0, Class::Ordinary);

impl Stream for TcpLink {
    fn signal(&self, signal: Signal) -> Result<(), LinkError> {
        self.signal_in(ORDINARY, signal)
    }

    fn signal_late(&self, signal: Signal) -> Result<(), LinkError> {
        self.signal_late_in(ORDINARY, signal)
    }

    fn inject(
        &self,
        region: RegionKey,
        offset: u64,
        bytes: &[u8],
        signal: Option<Signal>,
    ) -> Result<(), LinkError> {
        self.inject_in(ORDINARY, region, offset, bytes, signal)
    }

    fn put(
        &self,
        region: RegionKey,
        offset: u64,
        pieces: &[Iovec],
        signal: Option<Signal>,
    ) -> Result<Submission, LinkError> {
        self.put_in(ORDINARY, region, offset, pieces, signal)
    }
}

impl Link for TcpLink {
    fn urgent(&self) -> &dyn Stream {
        &self.streams[self.streams.len() - 1]
    }

    fn emptiest_stream(&self) -> usize {
        let count = self.carriers().len();
        if count == 1 {
            return 0;
        }
        let first = self.next_stream.fetch_add(1, Ordering::Relaxed);
        let numbers = (0..count).map(|step| first.wrapping_add(step) % count);
        let waiting = |number: &usize| {
            let carrier = &self.carriers()[*number];
            (carrier.is_broken(), carrier.waiting.load(Ordering::Relaxed))
        };
        numbers.min_by_key(waiting).unwrap_or(0)
    }

    fn further_stream(&self, number: usize) -> Option<&dyn Stream> {
        let stream = self.streams[..self.carriers().len() - 1].get(number.checked_sub(1)?)?;
        Some(stream)
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

    fn memory(&self, _region: RegionKey) -> Option<Arc<Segment>> {
        None
    }

    fn completed(&self, ticket: Ticket) -> Result<bool, LinkError> {
        let carrier = &self.carriers()[class::connection_of(ticket)];
        let class = Class::of(ticket) as usize;
        if ticket.0 < carrier.first_under_way[class].load(Ordering::Acquire) {
            if ticket.0 >= carrier.first_lent[class].load(Ordering::Acquire) {
                self.give_back(carrier, ticket);
            }
            return Ok(true);
        }
        self.connection.check().map(|()| false).inspect_err(|_| {
            // A thread that was sending when the link ended has stopped when this lock is free.
            drop(lock(&carrier.outgoing));
        })
    }

    fn released(&self, ticket: Ticket) -> bool {
        let carrier = &self.carriers()[class::connection_of(ticket)];
        let class = Class::of(ticket) as usize;
        let before = |first: &[AtomicU64]| ticket.0 < first[class].load(Ordering::Acquire);
        if before(&carrier.first_lent) {
            return true;
        }
        // Where nothing is copied, a caller that takes its memory back has it for nothing.
        if before(&carrier.first_under_way) && self.resumption.lets_go() {
            self.give_back(carrier, ticket);
            return true;
        }
        let mut outgoing = lock(&carrier.outgoing);
        if outgoing.kept().confirmed() >= carrier.taken.load(Ordering::Acquire) {
            return false;
        }
        // An error is reported by the next operation.
        let _ = self.note_confirmed(carrier, &mut outgoing);
        carrier.publish(&outgoing);
        drop(outgoing);
        before(&carrier.first_lent)
    }

    fn cancel(&self, ticket: Ticket) {
        let carrier = &self.carriers()[class::connection_of(ticket)];
        let mut outgoing = lock(&carrier.outgoing);
        outgoing.cancel(ticket);
        carrier.publish(&outgoing);
    }

    fn message(&self, bytes: &[u8]) -> Result<(), LinkError> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(invalid("a message of more than 64 KiB"));
        }
        self.fence()?;
        let frame = Frame::Message { bytes: bytes.len() };
        self.sending(0, |outgoing, send| {
            outgoing.frame(Class::Ordinary, &frame, bytes, send)
        })
    }

    fn flush(&self) -> Result<FlushState, LinkError> {
        self.flush_all(TcpOutgoing::is_due)
    }

    fn flush_late(&self) -> Result<FlushState, LinkError> {
        self.flush_all(|_| true)
    }

    fn descriptor(&self) -> Option<RawFd> {
        Some(match &self.connection.watched {
            Some(watched) => watched.descriptor(),
            None => self.connection.sockets[0].descriptor(),
        })
    }

    fn take_change(&self) -> bool {
        self.connection.changed.swap(false, Ordering::AcqRel)
    }

    fn receive(&self, inbox: &mut dyn Inbox) -> Result<(), LinkError> {
        // The holder of the turn receives everything; an inbox that calls back here finds its own
        // thread to be the holder.
        let Ok(_turn) = self.turn.try_lock() else {
            return Ok(());
        };
        let mut budget = RECEIVED_BYTES_MAX;
        // The first connection's messages wait for the others' data.
        for number in (0..self.carriers().len()).rev() {
            while let Intake::Message(message) = self.receive_from(number, &mut budget)? {
                inbox.message(&message);
            }
        }
        Ok(())
    }

    fn grant(&self, region: RegionKey, range: Range<u64>) -> Result<(), LinkError> {
        for carrier in self.carriers() {
            lock(&carrier.incoming).grant(region, range.clone());
        }
        Ok(())
    }

    fn revoke(&self, region: RegionKey, range: Range<u64>) {
        for carrier in self.carriers() {
            lock(&carrier.incoming).revoke(region, range.clone());
        }
    }

    fn close(&self) {
        if self.closed.swap(true, Ordering::SeqCst) {
            return;
        }
        let alive = self.connection.can_send_goodbye();
        self.connection.end(ConnectionEnd::Closed);
        if alive {
            closing::say_goodbye(&self.connection);
        }
    }

    fn redirections(&self) -> Option<&dyn Redirections> {
        Some(self)
    }
}

impl LinkStatus for TcpLink {
    fn presence(&self) -> Presence {
        Presence::Unknown {
            round_trip: self.round_trip,
        }
    }

    fn standing(&self) -> Standing {
        let silent = |silence| silence > closing::WATCH_PERIOD;
        match self.connection.check() {
            Err(_) => Standing::Ended,
            Ok(()) if self.connection.is_interrupted() => Standing::Silent,
            Ok(()) if self.connection.silence().is_some_and(silent) => Standing::Silent,
            Ok(()) => Standing::Good,
        }
    }

    fn traffic(&self) -> Option<TrafficCounts> {
        self.connection.traffic()
    }
}

impl Redirections for TcpLink {
    fn redirect(&self, region: RegionKey, offset: u64, into: IovecMut) -> Redirection {
        let redirection = Redirection(self.redirections.fetch_add(1, Ordering::Relaxed));
        for carrier in self.carriers() {
            lock(&carrier.incoming).redirect(redirection, (region, offset), into);
        }
        redirection
    }

    fn take_back(&self, redirection: Redirection) -> Vec<Range<u64>> {
        let carriers = self.carriers().iter();
        carriers
            .flat_map(|carrier| lock(&carrier.incoming).take_back(redirection))
            .collect()
    }

    fn note_copied(&self, bytes: u64) {
        self.resumption.allows_copy(bytes);
    }
}

impl Drop for TcpLink {
    /// Without a goodbye, the peer must see an abnormal end.
    fn drop(&mut self) {
        if !self.closed.load(Ordering::SeqCst) {
            self.connection.end(ConnectionEnd::Closed);
            self.connection.over.store(true, Ordering::Release);
            self.connection.shut_down();
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
        return Err(invalid("the put reaches beyond the address space"));
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

#[cfg(test)]
mod tests;
