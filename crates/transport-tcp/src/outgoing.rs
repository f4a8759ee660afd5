//! The sending half of a link: small frames copied and sent together, large puts sent out of the
//! caller's memory.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use weft_transport::{FlushState, Iovec, RegionKey, Signal, Submission, Ticket};

use crate::frame::{Frame, HEADER_BYTES};

/// Puts up to this size are copied.
const COPIED_BYTES_MAX: u64 = 2 << 10;
/// Puts that can be under way. Many are of no use: one stream carries them one behind the other.
const PUTS_MAX: usize = 16;
/// Copied frames go out without being asked once there are this many bytes of them.
const COALESCED_BYTES_MAX: usize = 64 << 10;
/// One call sends about this much at most, so that other links get their turn.
const CALL_BYTES_MAX: usize = 1 << 20;
/// What one system call takes.
const SLICES_MAX: usize = 32;
static ZEROS: [u8; 32 << 10] = [0; 32 << 10];

/// Hands bytes to the connection and says how many it took.
pub(crate) type Send<'a> = &'a mut dyn FnMut(&[IoSlice<'_>]) -> io::Result<usize>;

/// A put whose payload is being sent.
#[derive(Debug)]
struct Put {
    ticket: Ticket,
    /// What is left to send. A cancelled put has none, and sends zeros instead.
    pieces: VecDeque<Iovec>,
    /// How much of the first piece is sent.
    skip: usize,
    left: u64,
    /// Frames that leave behind the payload. The first is the put's signal, if it has one and is
    /// not cancelled.
    behind: VecDeque<u8>,
    signals: bool,
}

/// Bytes leave in this order: `ready`, then for each put its payload and what is behind it.
#[derive(Default, Debug)]
pub(crate) struct TcpOutgoing {
    ready: VecDeque<u8>,
    puts: VecDeque<Put>,
    tickets: u64,
    /// An empty queue, for what is behind the next put.
    spare: VecDeque<u8>,
}

impl TcpOutgoing {
    /// See [`weft_transport::Link::put`]; `pieces` are not empty.
    pub(crate) fn put(
        &mut self,
        (region, offset): (RegionKey, u64),
        pieces: &[Iovec],
        signal: Option<Signal>,
        send: Send<'_>,
    ) -> io::Result<Submission> {
        let bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        let range = offset..offset + bytes;
        if bytes <= COPIED_BYTES_MAX {
            self.push(&Frame::put(region, range, signal).encode());
            for piece in pieces {
                // SAFETY: whoever made the piece has promised that it can be read now.
                self.push(unsafe { std::slice::from_raw_parts(piece.start(), piece.len()) });
            }
            self.send_if_many(send)?;
            return Ok(Submission::Done);
        }
        if self.puts.len() >= PUTS_MAX {
            return Ok(Submission::Full);
        }
        self.push(&Frame::put(region, range, None).encode());
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let mut behind = std::mem::take(&mut self.spare);
        if let Some(signal) = signal {
            behind.extend(Frame::Signal(signal).encode());
        }
        self.puts.push_back(Put {
            ticket,
            pieces: pieces.iter().copied().filter(|p| !p.is_empty()).collect(),
            skip: 0,
            left: bytes,
            behind,
            signals: signal.is_some(),
        });
        if self.puts.len() == 1 {
            self.advance(send)?;
        }
        Ok(match self.is_under_way(ticket) {
            true => Submission::UnderWay(ticket),
            false => Submission::Done,
        })
    }

    /// All puts with lower tickets are complete.
    pub(crate) fn first_under_way(&self) -> Ticket {
        let first = self.puts.front().map(|put| put.ticket);
        first.unwrap_or(Ticket(self.tickets + 1))
    }

    fn is_under_way(&self, ticket: Ticket) -> bool {
        ticket.0 >= self.first_under_way().0
    }

    pub(crate) fn cancel(&mut self, ticket: Ticket) {
        if let Some(put) = self.puts.iter_mut().find(|put| put.ticket == ticket) {
            put.cancel();
        }
    }

    pub(crate) fn cancel_all(&mut self) {
        self.puts.iter_mut().for_each(Put::cancel);
    }

    pub(crate) fn frame(
        &mut self,
        frame: &Frame,
        payload: &[u8],
        send: Send<'_>,
    ) -> io::Result<()> {
        self.push(&frame.encode());
        self.push(payload);
        self.send_if_many(send)
    }

    /// Sends what can go.
    pub(crate) fn flush(&mut self, send: Send<'_>) -> io::Result<FlushState> {
        self.advance(send)
    }

    fn push(&mut self, bytes: &[u8]) {
        let queue = match self.puts.back_mut() {
            Some(put) => &mut put.behind,
            None => &mut self.ready,
        };
        queue.extend(bytes);
    }

    fn send_if_many(&mut self, send: Send<'_>) -> io::Result<()> {
        if self.ready.len() >= COALESCED_BYTES_MAX {
            self.advance(send)?;
        }
        Ok(())
    }

    /// Sends until everything is sent, the connection takes no more, or it is time to let others
    /// have a turn.
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
                    self.consume(bytes);
                    sent += bytes;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(match self.puts.is_empty() && self.ready.is_empty() {
            true => FlushState::Done,
            false => FlushState::Pending,
        })
    }

    /// What goes next, as far as it fits into one system call.
    fn collect<'a>(&'a self, slices: &mut Slices<'a>) {
        slices.add_queue(&self.ready);
        for put in &self.puts {
            put.collect(slices);
            slices.add_queue(&put.behind);
        }
    }

    fn consume(&mut self, mut bytes: usize) {
        loop {
            let from_ready = bytes.min(self.ready.len());
            self.ready.drain(..from_ready);
            bytes -= from_ready;
            let Some(put) = self.puts.front_mut().filter(|_| self.ready.is_empty()) else {
                return;
            };
            bytes -= put.consume(bytes);
            if put.left > 0 {
                return;
            }
            if let Some(put) = self.puts.pop_front() {
                self.spare = std::mem::replace(&mut self.ready, put.behind);
            }
        }
    }
}

impl Put {
    fn cancel(&mut self) {
        if std::mem::take(&mut self.signals) {
            self.behind.drain(..HEADER_BYTES);
        }
        self.pieces.clear();
    }

    fn collect<'a>(&'a self, slices: &mut Slices<'a>) {
        let (mut skip, mut left) = (self.skip, self.left);
        for piece in &self.pieces {
            let at = piece.start().wrapping_add(skip);
            // SAFETY: whoever made the piece has promised that it can be read until the put is
            // complete or cancelled: then it is not among the pieces any more.
            let rest = unsafe { std::slice::from_raw_parts(at, piece.len() - skip) };
            slices.add(rest);
            left -= rest.len() as u64;
            skip = 0;
        }
        while left > 0 && !slices.full {
            let zeros = left.min(ZEROS.len() as u64);
            slices.add(&ZEROS[..zeros as usize]);
            left -= zeros;
        }
    }

    /// Takes note that so much was sent, as far as it is the put's. Returns how much is.
    fn consume(&mut self, bytes: usize) -> usize {
        let mine = self.left.min(bytes as u64) as usize;
        self.left -= mine as u64;
        self.skip += mine;
        while let Some(piece) = self.pieces.front().filter(|piece| piece.len() <= self.skip) {
            self.skip -= piece.len();
            self.pieces.pop_front();
        }
        mine
    }
}

/// The arguments of one system call.
struct Slices<'a> {
    slices: [IoSlice<'a>; SLICES_MAX],
    count: usize,
    /// Something did not fit: nothing that comes behind it may be added.
    full: bool,
}

impl Default for Slices<'_> {
    fn default() -> Self {
        Self {
            slices: [IoSlice::new(&[]); SLICES_MAX],
            count: 0,
            full: false,
        }
    }
}

impl<'a> Slices<'a> {
    /// Adds bytes if there is room. No bytes need no room.
    fn add(&mut self, bytes: &'a [u8]) {
        if bytes.is_empty() {
            return;
        }
        self.full |= self.count == SLICES_MAX;
        if !self.full {
            self.slices[self.count] = IoSlice::new(bytes);
            self.count += 1;
        }
    }

    fn add_queue(&mut self, queue: &'a VecDeque<u8>) {
        let (front, back) = queue.as_slices();
        self.add(front);
        self.add(back);
    }

    fn filled(&self) -> &[IoSlice<'a>] {
        &self.slices[..self.count]
    }
}
