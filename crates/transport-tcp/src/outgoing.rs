//! What is on its way out of a link: small frames are copied and go out together, a big put goes out of the caller's memory.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use weft_transport::{Progress, Signal};

use crate::frame::{Frame, HEADER_BYTES};

/// Puts up to this size are copied.
const COPIED_BYTES_MAX: u64 = 2 << 10;
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
    token: u64,
    bytes: u64,
    sent: u64,
    abandoned: bool,
    /// Its signal is the first frame of [`Outgoing::behind`].
    signals: bool,
}

/// Bytes leave in this order: `ready`, the payload of `put`, `behind`.
///
/// Invariant: without a put, nothing is behind it.
#[derive(Default, Debug)]
pub(crate) struct Outgoing {
    ready: VecDeque<u8>,
    put: Option<Put>,
    behind: VecDeque<u8>,
}

impl Outgoing {
    /// See [`weft_transport::Link::put`]; `pieces` are not empty.
    pub(crate) fn put(
        &mut self,
        token: u64,
        offset: u64,
        pieces: &[&[u8]],
        signal: Option<Signal>,
        send: Send<'_>,
    ) -> io::Result<Progress> {
        if self
            .put
            .as_ref()
            .is_some_and(|put| put.token != token || put.abandoned)
        {
            self.advance(&[], send)?;
            if self.put.is_some() {
                return Ok(Progress::Pending);
            }
        }
        if self.put.is_none() {
            let bytes: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
            let range = offset..offset + bytes;
            if bytes <= COPIED_BYTES_MAX {
                self.push(&Frame::Put { range, signal }.encode());
                pieces.iter().for_each(|piece| self.push(piece));
                self.send_if_many(send)?;
                return Ok(Progress::Done);
            }
            self.push(
                &Frame::Put {
                    range,
                    signal: None,
                }
                .encode(),
            );
            self.begin(token, bytes, signal);
        }
        self.advance(pieces, send)?;
        Ok(match self.put {
            Some(_) => Progress::Pending,
            None => Progress::Done,
        })
    }

    pub(crate) fn abandon(&mut self, token: u64) {
        match &mut self.put {
            Some(put) if put.token == token && !put.abandoned => {
                put.abandoned = true;
                if put.signals {
                    self.behind.drain(..HEADER_BYTES);
                }
            }
            _ => {}
        }
    }

    /// Abandons whatever is under way.
    pub(crate) fn abandon_all(&mut self) {
        if let Some(token) = self.put.as_ref().map(|put| put.token) {
            self.abandon(token);
        }
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

    /// Sends what can go without a caller's payload.
    pub(crate) fn flush(&mut self, send: Send<'_>) -> io::Result<Progress> {
        self.advance(&[], send)
    }

    fn begin(&mut self, token: u64, bytes: u64, signal: Option<Signal>) {
        self.put = Some(Put {
            token,
            bytes,
            sent: 0,
            abandoned: false,
            signals: signal.is_some(),
        });
        if let Some(signal) = signal {
            self.behind.extend(Frame::Signal(signal).encode());
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        let queue = match self.put {
            Some(_) => &mut self.behind,
            None => &mut self.ready,
        };
        queue.extend(bytes);
    }

    fn send_if_many(&mut self, send: Send<'_>) -> io::Result<()> {
        if self.ready.len() >= COALESCED_BYTES_MAX {
            self.advance(&[], send)?;
        }
        Ok(())
    }

    /// Sends until everything is sent, the connection takes no more, or it is time to let others have a turn.
    fn advance(&mut self, pieces: &[&[u8]], send: Send<'_>) -> io::Result<Progress> {
        let mut sent = 0;
        while sent < CALL_BYTES_MAX {
            let mut slices = Slices::default();
            self.collect(pieces, &mut slices);
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
        Ok(match self.put {
            None if self.ready.is_empty() => Progress::Done,
            _ => Progress::Pending,
        })
    }

    /// What goes next, as far as it is known and fits into one system call.
    fn collect<'a>(&'a self, pieces: &[&'a [u8]], slices: &mut Slices<'a>) {
        slices.add_queue(&self.ready);
        if let Some(put) = &self.put {
            let mut left = put.bytes - put.sent;
            if put.abandoned {
                while left > 0 && !slices.full() {
                    let zeros = left.min(ZEROS.len() as u64);
                    slices.add(&ZEROS[..zeros as usize]);
                    left -= zeros;
                }
            } else {
                let mut skip = put.sent;
                for piece in pieces {
                    let skipped = skip.min(piece.len() as u64);
                    skip -= skipped;
                    let rest = &piece[skipped as usize..];
                    if slices.add(rest) {
                        left -= rest.len() as u64;
                    }
                }
            }
            if left > 0 {
                return;
            }
        }
        slices.add_queue(&self.behind);
    }

    fn consume(&mut self, mut bytes: usize) {
        let from_ready = bytes.min(self.ready.len());
        self.ready.drain(..from_ready);
        bytes -= from_ready;
        let Some(put) = &mut self.put else { return };
        let from_put = (bytes as u64).min(put.bytes - put.sent);
        put.sent += from_put;
        if put.sent == put.bytes && self.ready.is_empty() {
            self.put = None;
            std::mem::swap(&mut self.ready, &mut self.behind);
            self.ready.drain(..bytes - from_put as usize);
        }
    }
}

/// The arguments of one system call.
struct Slices<'a> {
    slices: [IoSlice<'a>; SLICES_MAX],
    count: usize,
}

impl Default for Slices<'_> {
    fn default() -> Self {
        Self {
            slices: [IoSlice::new(&[]); SLICES_MAX],
            count: 0,
        }
    }
}

impl<'a> Slices<'a> {
    fn full(&self) -> bool {
        self.count == SLICES_MAX
    }

    /// Adds bytes if there is room, and says whether there was. No bytes need no room.
    fn add(&mut self, bytes: &'a [u8]) -> bool {
        if bytes.is_empty() {
            return true;
        }
        if self.full() {
            return false;
        }
        self.slices[self.count] = IoSlice::new(bytes);
        self.count += 1;
        true
    }

    fn add_queue(&mut self, queue: &'a VecDeque<u8>) {
        let (front, back) = queue.as_slices();
        if self.add(front) {
            self.add(back);
        }
    }

    fn filled(&self) -> &[IoSlice<'a>] {
        &self.slices[..self.count]
    }
}
