//! The sending half of a link: small frames are copied and sent together, large puts are sent from
//! the caller's memory.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::time::{Duration, Instant};

use weft_transport::{FlushState, Iovec, RegionKey, Signal, Submission, Ticket};

use crate::class::{CLASSES, Class};
use crate::frame::{Frame, HEADER_BYTES};
use crate::kept::Kept;
use crate::put::Put;
use crate::resumption::Resumption;
use crate::slices::Slices;

/// Puts up to this size are copied.
const COPIED_BYTES_MAX: u64 = 2 << 10;
/// Sent puts up to this size are copied at once, if they are kept.
const COPIED_SOON_BYTES_MAX: u64 = 16 << 10;
/// The most puts under way. More have no benefit: one stream sends them one behind the other.
const PUTS_MAX: usize = 16;
/// Copied frames are sent immediately once there are this many bytes of them.
const COALESCED_BYTES_MAX: usize = 64 << 10;
/// One call sends at most about this many bytes, so that other links get their turn.
const CALL_BYTES_MAX: usize = 1 << 20;
/// The least bytes that arrive between two confirmations: of one that is sent with another frame,
/// and of one that costs a system call here, and a wake at the peer.
pub(crate) const CONFIRMED_BYTES: u64 = 256 << 10;
pub(crate) const CONFIRMED_ALONE_BYTES: u64 = 1 << 20;
/// The least time that passes between two confirmations.
const CONFIRMED_AFTER: Duration = Duration::from_millis(2);

/// Passes bytes to the connection and returns how many it accepted. Without bytes: `WouldBlock` if
/// some that it accepted are not sent yet.
pub(crate) type Send<'a> = &'a mut dyn FnMut(&[IoSlice<'_>]) -> io::Result<usize>;

/// Frames that are sent in this order: `ready`, then each put and the frames behind it.
#[derive(Default, Debug)]
struct FrameQueue {
    ready: VecDeque<u8>,
    /// `ready` holds more than signals that may be late.
    due: bool,
    /// Part of `ready` is sent: the rest may begin within a frame.
    begun: bool,
    puts: VecDeque<Put>,
    tickets: u64,
    /// An empty queue, for the frames behind the next put.
    spare: VecDeque<u8>,
}

/// The data that one connection sends: a queue for each class. Between two frames of the ordinary
/// one, all urgent frames are sent first.
#[derive(Default, Debug)]
pub(crate) struct TcpOutgoing {
    connection: usize,
    queues: [FrameQueue; CLASSES.len()],
    /// Bytes that were queued since the beginning: the position of the next frame.
    queued: u64,
    /// The bytes that are sent and not confirmed.
    kept: Kept,
    /// The position up to which arrivals were confirmed to the peer, and when.
    reported: u64,
    reported_at: Option<Instant>,
    /// The connection has accepted bytes that are not sent yet.
    held: bool,
}

impl TcpOutgoing {
    /// The sending half of the connection with this number.
    pub(crate) fn of(connection: usize, resumption: Resumption) -> Self {
        Self {
            connection,
            kept: Kept::new(resumption),
            ..Self::default()
        }
    }

    /// The position of the next frame, in bytes.
    pub(crate) fn position(&self) -> u64 {
        self.queued
    }

    /// Bytes that are not sent yet.
    pub(crate) fn waiting(&self) -> u64 {
        self.queued - self.kept.sent() + self.kept.left()
    }

    /// The bytes that are sent and not confirmed.
    pub(crate) fn kept(&mut self) -> &mut Kept {
        &mut self.kept
    }

    /// See [`weft_transport::Stream::put`]; `pieces` must not be empty.
    pub(crate) fn put(
        &mut self,
        class: Class,
        place: (RegionKey, u64),
        pieces: &[Iovec],
        signal: Option<Signal>,
        send: Send<'_>,
    ) -> io::Result<Submission> {
        let bytes: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        if bytes <= COPIED_BYTES_MAX {
            self.queue(class).push_copied(place, pieces, bytes, signal);
            self.queued += HEADER_BYTES as u64 + bytes;
            self.send_if_many(class, send)?;
            return Ok(Submission::Done);
        }
        let queue = &mut self.queues[class as usize];
        if queue.puts.len() >= PUTS_MAX {
            return Ok(Submission::Full);
        }
        let ticket = class.ticket(self.connection, queue.tickets + 1);
        self.queued += queue.push_put(ticket, place, pieces, signal);
        if queue.puts.len() == 1 {
            self.advance(send)?;
        }
        if bytes <= COPIED_SOON_BYTES_MAX && ticket.0 < self.first_under_way(class).0 {
            // Its caller will hardly ask for it later.
            self.kept.give_back(ticket);
        }
        Ok(match ticket.0 >= self.first_lent(class).0 {
            true => Submission::UnderWay(ticket),
            false => Submission::Done,
        })
    }

    /// All puts of this class with lower tickets are sent.
    pub(crate) fn first_under_way(&self, class: Class) -> Ticket {
        let queue = &self.queues[class as usize];
        let first = queue.puts.front().map(|put| put.ticket);
        first.unwrap_or_else(|| class.ticket(self.connection, queue.tickets + 1))
    }

    /// All puts of this class with lower tickets are sent, and their memory is not read any more.
    pub(crate) fn first_lent(&self, class: Class) -> Ticket {
        let kept = self.kept.first_lent(class);
        kept.unwrap_or_else(|| self.first_under_way(class))
    }

    /// Ends the reading of a put's memory, which is sent or is cancelled.
    pub(crate) fn cancel(&mut self, ticket: Ticket) {
        let puts = &mut self.queue(Class::of(ticket)).puts;
        match puts.iter_mut().find(|put| put.ticket == ticket) {
            Some(put) => put.cancel(),
            None => self.kept.give_back(ticket),
        }
    }

    pub(crate) fn cancel_all(&mut self) {
        let puts = self.queues.iter_mut().flat_map(|queue| &mut queue.puts);
        puts.for_each(Put::cancel);
        self.kept.give_back_all();
    }

    /// Queues a confirmation of what has arrived on this connection up to a position, if that is
    /// `least` bytes or more. It is sent with the next frame, or when there is nothing else to do.
    pub(crate) fn confirm(&mut self, arrived: u64, least: u64) {
        if arrived - self.reported < least {
            return;
        }
        let now = Instant::now();
        if self
            .reported_at
            .is_none_or(|reported| now - reported >= CONFIRMED_AFTER)
        {
            (self.reported, self.reported_at) = (arrived, Some(now));
            self.late(Class::Urgent, &Frame::Confirmation { position: arrived });
        }
    }

    pub(crate) fn frame(
        &mut self,
        class: Class,
        frame: &Frame,
        payload: &[u8],
        send: Send<'_>,
    ) -> io::Result<()> {
        self.queued += (HEADER_BYTES + payload.len()) as u64;
        let queue = self.queue(class);
        queue.push(&frame.encode());
        queue.push(payload);
        self.send_if_many(class, send)
    }

    /// Queues a frame that may be sent with the next one, except on a further connection, where
    /// messages wait for it.
    pub(crate) fn late(&mut self, class: Class, frame: &Frame) {
        self.queued += HEADER_BYTES as u64;
        match self.connection {
            0 => self.queue(class).extend(&frame.encode()),
            _ => self.queue(class).push(&frame.encode()),
        }
    }

    /// Whether frames are queued that may not be late.
    pub(crate) fn is_due(&self) -> bool {
        let due = |queue: &FrameQueue| queue.due || queue.begun || !queue.puts.is_empty();
        self.held || self.kept.left() > 0 || self.queues.iter().any(due)
    }

    /// Sends as much as possible.
    pub(crate) fn flush(&mut self, send: Send<'_>) -> io::Result<FlushState> {
        self.advance(send)
    }

    fn queue(&mut self, class: Class) -> &mut FrameQueue {
        &mut self.queues[class as usize]
    }

    fn send_if_many(&mut self, class: Class, send: Send<'_>) -> io::Result<()> {
        if self.queue(class).ready.len() >= COALESCED_BYTES_MAX {
            self.advance(send)?;
        }
        Ok(())
    }

    /// Sends until everything is sent, the connection accepts no more, or other links should get
    /// their turn.
    fn advance(&mut self, send: Send<'_>) -> io::Result<FlushState> {
        let mut sent = 0;
        while sent < CALL_BYTES_MAX {
            let mut slices = Slices::default();
            self.collect(&mut slices);
            if slices.count == 0 {
                break;
            }
            match send(slices.filled()) {
                Ok(bytes) => {
                    self.consume(bytes as u64);
                    sent += bytes;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.held = match send(&[]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
            other => other.map(|_| false)?,
        };
        Ok(match !self.held && self.waiting() == 0 {
            true => FlushState::Done,
            false => FlushState::Pending,
        })
    }

    /// The next bytes to send, as many as fit into one system call.
    fn collect<'a>(&'a self, slices: &mut Slices<'a>) {
        if self.kept.left() > 0 {
            return self.kept.collect(slices, |ticket| self.sending(ticket));
        }
        let [ordinary, urgent] = &self.queues;
        match urgent.is_empty() {
            true => ordinary.collect(slices, u64::MAX),
            false => {
                ordinary.collect(slices, ordinary.within_frame());
                urgent.collect(slices, u64::MAX);
            }
        }
    }

    /// Records that this many of the bytes from [`TcpOutgoing::collect`] were sent.
    fn consume(&mut self, bytes: u64) {
        if self.kept.left() > 0 {
            return self.kept.consume(bytes);
        }
        let [ordinary, urgent] = &mut self.queues;
        if urgent.is_empty() {
            return ordinary.consume(bytes, &mut self.kept);
        }
        let first = bytes.min(ordinary.within_frame());
        ordinary.consume(first, &mut self.kept);
        urgent.consume(bytes - first, &mut self.kept);
    }

    /// The put with this ticket, of those that are being sent.
    fn sending(&self, ticket: Ticket) -> Option<&Put> {
        let queue = &self.queues[Class::of(ticket) as usize];
        queue.puts.iter().find(|put| put.ticket == ticket)
    }
}

impl FrameQueue {
    fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.puts.is_empty()
    }

    fn push(&mut self, bytes: &[u8]) {
        self.due = true;
        self.extend(bytes);
    }

    fn extend(&mut self, bytes: &[u8]) {
        let queue = match self.puts.back_mut() {
            Some(put) => &mut put.behind,
            None => &mut self.ready,
        };
        queue.extend(bytes);
    }

    fn push_copied(
        &mut self,
        (region, offset): (RegionKey, u64),
        pieces: &[Iovec],
        bytes: u64,
        signal: Option<Signal>,
    ) {
        self.push(&Frame::put(region, offset..offset + bytes, signal).encode());
        for piece in pieces {
            // SAFETY: the piece's maker has promised that it can be read now.
            self.push(unsafe { std::slice::from_raw_parts(piece.start(), piece.len()) });
        }
    }

    /// Queues a put, and returns how many bytes its frames have.
    fn push_put(
        &mut self,
        ticket: Ticket,
        place: (RegionKey, u64),
        pieces: &[Iovec],
        signal: Option<Signal>,
    ) -> u64 {
        self.tickets += 1;
        self.due |= signal.is_some();
        let behind = std::mem::take(&mut self.spare);
        let put = Put::new(ticket, place, pieces, signal, behind);
        let queued = put.left() + put.behind.len() as u64;
        self.puts.push_back(put);
        queued
    }

    /// How many bytes are left until the end of a frame.
    fn within_frame(&self) -> u64 {
        match (self.ready.is_empty(), self.puts.front()) {
            (false, _) if self.begun => self.ready.len() as u64,
            (true, Some(put)) => put.within_frame(),
            _ => 0,
        }
    }

    /// The next bytes to send, up to a limit that is the end of a frame.
    fn collect<'a>(&'a self, slices: &mut Slices<'a>, limit: u64) {
        if limit == 0 {
            return;
        }
        slices.add_queue(&self.ready);
        let Some(mut left) = limit.checked_sub(self.ready.len() as u64) else {
            return;
        };
        for put in &self.puts {
            if left == 0 || slices.full {
                return;
            }
            put.collect(slices, left);
            left = left.saturating_sub(put.left());
            if left > 0 {
                slices.add_queue(&put.behind);
                left = left.saturating_sub(put.behind.len() as u64);
            }
        }
    }

    fn consume(&mut self, mut bytes: u64, kept: &mut Kept) {
        loop {
            let from_ready = bytes.min(self.ready.len() as u64) as usize;
            kept.keep(&self.ready, from_ready);
            self.ready.drain(..from_ready);
            self.begun |= from_ready > 0;
            bytes -= from_ready as u64;
            if !self.ready.is_empty() {
                return;
            }
            self.begun = false;
            let Some(put) = self.puts.front_mut() else {
                self.due = false;
                return;
            };
            let mine = bytes.min(put.left());
            kept.keep_frames(put, mine);
            put.sent += mine;
            bytes -= mine;
            if put.left() > 0 {
                return;
            }
            if let Some(mut put) = self.puts.pop_front() {
                self.spare = std::mem::replace(&mut self.ready, std::mem::take(&mut put.behind));
                kept.keep_put(put);
            }
        }
    }
}
