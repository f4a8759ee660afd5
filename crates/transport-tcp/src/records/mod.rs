//! Records: the encrypted layer between socket and frames.
//!
//! The bytes of frames are cut at any position, and each piece is sealed: its length (2 bytes,
//! little-endian), its encrypted bytes, and a tag (16). Each direction of each connection has its
//! own key, from the handshake, and the number of a record under its key is the nonce. So a record
//! that is changed, left out, repeated or moved does not authenticate, and ends the connection.
//!
//! [Note: Authentic first] A record is decrypted in the buffer that received it, which nothing else
//! reads, and copied from there. Decrypted bytes that are not the peer's never reach the memory of
//! regions or callers.
//!
//! [Note: Short records] A piece is not delivered before all of it has arrived, so records are
//! short. System calls are made for several of them together. Urgent frames cannot overtake sealed
//! ones: at most one such batch is sealed ahead.
#![forbid(unsafe_code)]

use std::io::{self, IoSlice, IoSliceMut, Read};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::encryption::Cipher;
use crate::lock::lock;
use crate::record_key::{RecordKey, TAG_BYTES};

/// The most plain bytes of a record.
const PLAIN_BYTES_MAX: usize = 16 << 10;
const HEADER_BYTES: usize = 2;
const RECORD_BYTES_MAX: usize = HEADER_BYTES + PLAIN_BYTES_MAX + TAG_BYTES;
/// Records that are sealed, or received, together.
const BATCH: usize = 4;

/// The encryption of one connection, from its handshake.
#[derive(Debug)]
pub(crate) struct Records {
    sealing: Mutex<Sealing>,
    opening: Mutex<Opening>,
}

impl Records {
    /// From the secrets of both directions, which only the two ends have.
    pub(crate) fn new(cipher: Cipher, outgoing: &[u8; 32], incoming: &[u8; 32]) -> Self {
        Self {
            sealing: Mutex::new(Sealing::new(RecordKey::new(cipher, outgoing))),
            opening: Mutex::new(Opening::new(RecordKey::new(cipher, incoming))),
        }
    }

    /// Continues with the keys of another connection, whose first record is the next.
    pub(crate) fn replace(&self, new: Records) {
        let (sealing, opening) = (new.sealing.into_inner(), new.opening.into_inner());
        *lock(&self.sealing) = sealing.unwrap_or_else(PoisonError::into_inner);
        *lock(&self.opening) = opening.unwrap_or_else(PoisonError::into_inner);
    }

    /// See [`Sealing::send`].
    pub(crate) fn send(
        &self,
        slices: &[IoSlice<'_>],
        write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        lock(&self.sealing).send(slices, write)
    }

    /// The decrypted bytes from the peer.
    pub(crate) fn reader<R: Read>(&self, from: R) -> RecordReader<'_, R> {
        RecordReader {
            opening: lock(&self.opening),
            from,
        }
    }

    /// The bytes that have arrived already, if they hold a whole record that was not delivered.
    pub(crate) fn received(&self) -> Option<RecordReader<'_, Pause>> {
        let opening = lock(&self.opening);
        (opening.has_input()).then_some(RecordReader {
            opening,
            from: Pause,
        })
    }
}

/// The plain bytes of a connection.
pub(crate) struct RecordReader<'a, R> {
    opening: MutexGuard<'a, Opening>,
    from: R,
}

impl<R: Read> Read for RecordReader<'_, R> {
    fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
        self.read_vectored(&mut [IoSliceMut::new(place)])
    }

    fn read_vectored(&mut self, places: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.opening.read(places, &mut self.from)
    }
}

/// A connection from which nothing is read for now.
pub(crate) struct Pause;

impl Read for Pause {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

/// The sending direction.
///
/// Invariant: `batch[left]` is sealed and not sent; nothing else is sealed before it is sent.
#[derive(Debug)]
pub(crate) struct Sealing {
    key: RecordKey,
    batch: Box<[u8]>,
    left: Range<usize>,
}

impl Sealing {
    pub(crate) fn new(key: RecordKey) -> Self {
        Self {
            key,
            batch: vec![0; BATCH * RECORD_BYTES_MAX].into(),
            left: 0..0,
        }
    }

    /// Accepts some of the bytes, seals them, and sends as much as possible; returns how many were
    /// accepted. `WouldBlock` if earlier ones are not sent yet. Without bytes, sends only those.
    pub(crate) fn send(
        &mut self,
        slices: &[IoSlice<'_>],
        mut write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.pass_on(&mut write)?;
        let taken = self.seal(slices)?;
        match self.pass_on(&mut write) {
            Err(error) if !is_momentary(&error) => Err(error),
            _ => Ok(taken),
        }
    }

    fn pass_on(&mut self, write: &mut impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<()> {
        while !self.left.is_empty() {
            self.left.start += write(&self.batch[self.left.clone()])?;
        }
        Ok(())
    }

    fn seal(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.left = 0..0;
        let mut source = Gather { slices, at: 0 };
        let mut taken = 0;
        for record in self.batch.chunks_mut(RECORD_BYTES_MAX) {
            let (header, rest) = record.split_at_mut(HEADER_BYTES);
            let bytes = source.fill(&mut rest[..PLAIN_BYTES_MAX]);
            if bytes == 0 {
                break;
            }
            header.copy_from_slice(&(bytes as u16).to_le_bytes());
            let (plain, rest) = rest.split_at_mut(bytes);
            rest[..TAG_BYTES].copy_from_slice(&self.key.seal(plain)?);
            taken += bytes;
            // Only the last one is shorter than the others, so they are contiguous.
            self.left.end += HEADER_BYTES + bytes + TAG_BYTES;
        }
        Ok(taken)
    }
}

/// Bytes from several slices.
struct Gather<'a> {
    slices: &'a [IoSlice<'a>],
    /// How much of the first slice is consumed.
    at: usize,
}

impl Gather<'_> {
    /// Fills a place as far as there are bytes, and returns how many.
    fn fill(&mut self, place: &mut [u8]) -> usize {
        let mut filled = 0;
        while let Some((first, others)) = self.slices.split_first()
            && filled < place.len()
        {
            let source = &first[self.at..];
            let bytes = source.len().min(place.len() - filled);
            place[filled..filled + bytes].copy_from_slice(&source[..bytes]);
            filled += bytes;
            self.at += bytes;
            if self.at == first.len() {
                (self.slices, self.at) = (others, 0);
            }
        }
        filled
    }
}

/// The receiving direction.
///
/// Invariant: `buffer[plain]` is authentic and not delivered, `buffer[sealed]` follows it and is
/// not opened.
#[derive(Debug)]
pub(crate) struct Opening {
    key: RecordKey,
    buffer: Box<[u8]>,
    plain: Range<usize>,
    sealed: Range<usize>,
    /// Something arrived that is no record of the peer: nothing more is accepted.
    broken: bool,
}

impl Opening {
    pub(crate) fn new(key: RecordKey) -> Self {
        Self {
            key,
            buffer: vec![0; BATCH * RECORD_BYTES_MAX].into(),
            plain: 0..0,
            sealed: 0..0,
            broken: false,
        }
    }

    /// Fills the places, one behind the other, with the available bytes. Whole records stay here
    /// only if there is no room.
    pub(crate) fn read(
        &mut self,
        places: &mut [IoSliceMut<'_>],
        from: &mut impl Read,
    ) -> io::Result<usize> {
        let mut given = 0;
        let mut drained = false;
        for place in places {
            let mut filled = 0;
            while filled < place.len() {
                if !self.plain.is_empty() || self.open()? {
                    filled += self.copy_out(&mut place[filled..]);
                    continue;
                }
                let received = match drained {
                    true => Err(io::ErrorKind::WouldBlock.into()),
                    false => self.receive(from),
                };
                let so_far = given + filled;
                match received {
                    Ok((0, _)) => return Ok(so_far),
                    Ok((bytes, room)) => drained = bytes < room,
                    Err(error) if so_far == 0 || !is_momentary(&error) => return Err(error),
                    Err(_) => return Ok(so_far),
                }
            }
            given += filled;
        }
        Ok(given)
    }

    fn has_input(&self) -> bool {
        !self.plain.is_empty()
            || self
                .record()
                .is_some_and(|record| record <= self.sealed.len())
    }

    fn copy_out(&mut self, place: &mut [u8]) -> usize {
        let bytes = self.plain.len().min(place.len());
        let source = &self.buffer[self.plain.start..][..bytes];
        place[..bytes].copy_from_slice(source);
        self.plain.start += bytes;
        bytes
    }

    /// The length of the next record, if its header has arrived.
    fn record(&self) -> Option<usize> {
        let (length, _) = self.buffer[self.sealed.clone()].split_first_chunk()?;
        Some(HEADER_BYTES + usize::from(u16::from_le_bytes(*length)) + TAG_BYTES)
    }

    /// Opens the next record; false if it has not arrived completely.
    fn open(&mut self) -> io::Result<bool> {
        if self.broken {
            return Err(forged());
        }
        let Some(record) = self.record() else {
            return Ok(false);
        };
        let plain = record - HEADER_BYTES - TAG_BYTES;
        let possible = (1..=PLAIN_BYTES_MAX).contains(&plain);
        if possible && record > self.sealed.len() {
            return Ok(false);
        }
        let start = self.sealed.start + HEADER_BYTES;
        self.broken =
            !possible || !(self.key).open(&mut self.buffer[start..][..plain + TAG_BYTES])?;
        if self.broken {
            return Err(forged());
        }
        self.plain = start..start + plain;
        self.sealed.start += record;
        Ok(true)
    }

    /// Receives bytes, as far as there is room: returns how many arrived and how much room there
    /// was.
    fn receive(&mut self, from: &mut impl Read) -> io::Result<(usize, usize)> {
        self.buffer.copy_within(self.sealed.clone(), 0);
        self.sealed = 0..self.sealed.len();
        self.plain = 0..0;
        let free = &mut self.buffer[self.sealed.end..];
        let (room, bytes) = (free.len(), from.read(free)?);
        self.sealed.end += bytes;
        Ok((bytes, room))
    }
}

fn is_momentary(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, WouldBlock};
    matches!(error.kind(), WouldBlock | Interrupted)
}

fn forged() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the received data is not what the peer sent: bytes were changed, dropped or repeated on the way",
    )
}

#[cfg(test)]
mod tests;
