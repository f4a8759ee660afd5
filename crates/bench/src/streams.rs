//! Bare all-reduce over TCP: a floor that moves the fewest bytes and adds them, without the work
//! that a library adds.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::AsRawFd;

use weft_kernels::{DType, Finish, ReduceOp};

use crate::TimedOperation;

/// The most bytes that are received before they are added, so that they stay in the near caches.
const STAGING: usize = 128 << 10;

/// One stream to every other rank, all served by one thread that sleeps in `poll`.
///
/// Every rank adds one block of the message. A stream carries two parts: the sender's part of the
/// receiver's block, which is added when it arrives, and then the sender's block, which is sent as
/// far as every rank's part has been added. So each rank sends and receives `2 (P - 1) / P` of the
/// message. The order of additions is that of arrival.
pub struct Streams {
    peers: Vec<Peer>,
    buffer: *mut u8,
    own: Range<usize>,
    dtype: DType,
}

/// A stream, and its progress in the current call.
struct Peer {
    stream: TcpStream,
    /// The block that its rank adds.
    block: Range<usize>,
    sent: usize,
    /// Bytes that have been added, or received into their place.
    received: usize,
    staging: Vec<u8>,
    /// Bytes of the staging memory that are not a whole element yet.
    staged: usize,
}

// SAFETY: the pointer is a plain address; `Streams::new` states the requirements on the memory.
unsafe impl Send for Streams {}

impl Streams {
    /// An all-reduce over the connections to the other ranks, in their order; `rank` is this rank.
    ///
    /// # Errors
    ///
    /// If a socket rejects its options.
    ///
    /// # Safety
    ///
    /// As long as this is called, the buffer has `elements` elements, and nothing else uses it.
    pub unsafe fn new(
        streams: Vec<TcpStream>,
        rank: usize,
        buffer: *mut u8,
        dtype: DType,
        elements: usize,
    ) -> io::Result<Self> {
        let ranks = streams.len() + 1;
        let border = |rank: usize| elements * rank / ranks * dtype.size();
        let block = |rank: usize| border(rank)..border(rank + 1);
        let mut peers = Vec::new();
        for (place, stream) in streams.into_iter().enumerate() {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let other = place + usize::from(place >= rank);
            peers.push(Peer::new(stream, block(other)));
        }
        // Each rank begins with the next one, so that no rank receives from all others first.
        peers.rotate_left(rank);
        let own = block(rank);
        Ok(Self {
            peers,
            buffer,
            own,
            dtype,
        })
    }

    /// Sends and receives as much as possible without waiting. Returns whether the call is
    /// complete.
    fn advance(&mut self) -> io::Result<bool> {
        for peer in &mut self.peers {
            peer.receive(self.buffer, &self.own, self.dtype)?;
        }
        let added = self.added();
        let mut done = true;
        for peer in &mut self.peers {
            peer.send(self.buffer, &self.own, added)?;
            done &= peer.is_done(&self.own);
        }
        Ok(done)
    }

    /// The number of bytes of the own block to which every rank's part has been added.
    fn added(&self) -> usize {
        let parts = self.peers.iter().map(|peer| peer.received);
        parts.min().unwrap_or(0).min(self.own.len())
    }

    /// Sleeps until a stream can continue.
    fn wait(&self) -> io::Result<()> {
        let added = self.added();
        let interest = |peer: &Peer| libc::pollfd {
            fd: peer.stream.as_raw_fd(),
            events: peer.events(&self.own, added),
            revents: 0,
        };
        let mut entries: Vec<_> = self.peers.iter().map(interest).collect();
        // SAFETY: the pointer and the length are those of the vector.
        let ready = unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as _, -1) };
        match ready < 0 && io::Error::last_os_error().kind() != ErrorKind::Interrupted {
            true => Err(io::Error::last_os_error()),
            false => Ok(()),
        }
    }
}

impl TimedOperation for Streams {
    fn call(&mut self) -> Result<(), String> {
        for peer in &mut self.peers {
            (peer.sent, peer.received) = (0, 0);
        }
        let mut outcome = self.advance();
        while let Ok(false) = outcome {
            outcome = self.wait().and_then(|()| self.advance());
        }
        outcome.map(drop).map_err(|error| error.to_string())
    }
}

impl Peer {
    fn new(stream: TcpStream, block: Range<usize>) -> Self {
        Self {
            stream,
            block,
            sent: 0,
            received: 0,
            staging: vec![0; STAGING],
            staged: 0,
        }
    }

    fn is_done(&self, own: &Range<usize>) -> bool {
        let all = self.block.len() + own.len();
        self.sent == all && self.received == all
    }

    /// The events that this stream waits for.
    fn events(&self, own: &Range<usize>, added: usize) -> libc::c_short {
        let mut events = 0;
        if self.received < self.block.len() + own.len() {
            events |= libc::POLLIN;
        }
        if self.sent < self.block.len() + added {
            events |= libc::POLLOUT;
        }
        events
    }

    /// Sends this rank's part of the other's block, then the completed bytes of the own block.
    fn send(&mut self, buffer: *mut u8, own: &Range<usize>, added: usize) -> io::Result<()> {
        loop {
            let (start, bytes) = match self.block.len().checked_sub(self.sent) {
                Some(left @ 1..) => (self.block.start + self.sent, left),
                _ => {
                    let sent = self.sent - self.block.len();
                    (own.start + sent, added - sent)
                }
            };
            if bytes == 0 {
                return Ok(());
            }
            let from = buffer.wrapping_add(start);
            // SAFETY: the range is within the buffer, and nothing writes to it meanwhile.
            let bytes = unsafe { std::slice::from_raw_parts(from, bytes) };
            match self.stream.write(bytes) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Adds the other's part of the own block, then receives its block.
    fn receive(&mut self, buffer: *mut u8, own: &Range<usize>, dtype: DType) -> io::Result<()> {
        while self.received < own.len() {
            let left = own.len() - self.received;
            let room = STAGING.min(left);
            match read(&mut self.stream, &mut self.staging[self.staged..room])? {
                0 => return Ok(()),
                count => self.staged += count,
            }
            self.add(buffer.wrapping_add(own.start + self.received), dtype);
        }
        while self.received < own.len() + self.block.len() {
            let place = self.block.start + self.received - own.len();
            let into = buffer.wrapping_add(place);
            let left = self.block.end - place;
            // SAFETY: the range is within the buffer, and its old content has been sent, since the
            // other rank has its sum.
            let into = unsafe { std::slice::from_raw_parts_mut(into, left) };
            match read(&mut self.stream, into)? {
                0 => return Ok(()),
                count => self.received += count,
            }
        }
        Ok(())
    }

    /// Adds the complete elements that have arrived.
    fn add(&mut self, to: *mut u8, dtype: DType) {
        let elements = self.staged / dtype.size();
        let bytes = elements * dtype.size();
        // SAFETY: the staging memory and the own block have this many elements, and do not overlap.
        unsafe {
            weft_kernels::reduce(
                dtype,
                ReduceOp::Sum,
                &[to],
                &[to.cast_const(), self.staging.as_ptr()],
                elements,
                Finish::Keep,
            );
        };
        self.staging.copy_within(bytes..self.staged, 0);
        self.staged -= bytes;
        self.received += bytes;
    }
}

/// Reads available bytes; returns 0 if there are none yet.
fn read(stream: &mut TcpStream, into: &mut [u8]) -> io::Result<usize> {
    match stream.read(into) {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        other => other,
    }
}
