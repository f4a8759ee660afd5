//! Rings: records from one endpoint to another through memory that both map, with one writer, one
//! reader, and no waiting.
//!
//! The memory is a circle of bytes. A record is a header word, and its bytes rounded up to whole
//! words; the next header follows. The writer clears the *next* header before it stores this one,
//! with release: so a reader at a header finds 0 until the record is complete, never the contents
//! of an earlier lap, and needs one cache line for a short record. The reader stores its position
//! where the writer reads it when it runs out of room.
//!
//! A *diversion* is a record without bytes: the next record arrives another way. Room for one is
//! always left, so that a full ring does not keep its writer waiting.
//!
//! Neither side trusts the other: an impossible length or position is an error.

use crate::sync::{AtomicU64, Ordering};

/// The memory of a ring. Offsets are in bytes.
pub trait Circle {
    /// The bytes of the circle: a multiple of [`WORD`].
    fn bytes(&self) -> u64;

    /// The word at this place of the circle, a multiple of [`WORD`] below its length.
    fn header(&self, place: u64) -> &AtomicU64;

    /// The reader's position, which it stores here: not in the circle.
    fn taken(&self) -> &AtomicU64;

    /// Writes bytes at a place, at most up to the end of the circle.
    fn write(&self, place: u64, bytes: &[u8]);

    /// Appends `len` bytes from a place on, at most up to the end of the circle.
    fn read(&self, place: u64, len: u64, into: &mut Vec<u8>);
}

/// The alignment of records, in bytes.
pub const WORD: u64 = 8;
/// The header of a diversion. Others hold the record's length + 1; 0 is no record.
const DIVERSION: u64 = u64::MAX;
/// The room that is kept free: a diversion, and the cleared header behind it.
const RESERVE: u64 = 2 * WORD;

/// A protocol violation by the other side, in words.
pub type Breach = String;

/// The writing end.
#[derive(Debug, Default)]
pub struct Writer {
    /// Bytes written, over all laps.
    written: u64,
    /// Bytes that the reader was known to have taken.
    taken: u64,
}

/// The reading end.
#[derive(Debug, Default)]
pub struct Reader {
    /// Bytes taken, over all laps.
    taken: u64,
}

/// The result of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RingRead {
    /// No record yet.
    Nothing,
    /// A record.
    Record,
    /// The next record arrives another way.
    Diversion,
}

impl Writer {
    /// Writes a record of these pieces, if there is room. The caller then wakes the reader, if it
    /// sleeps.
    ///
    /// # Errors
    /// If the reader has stored an impossible position.
    pub fn write(&mut self, circle: &impl Circle, pieces: &[&[u8]]) -> Result<bool, Breach> {
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        let whole = record(len);
        if !self.has_room(circle, whole + RESERVE)? {
            return Ok(false);
        }
        let mut at = self.written + WORD;
        for piece in pieces {
            let (place, behind) = place(circle, at);
            let (first, rest) = piece.split_at(piece.len().min(behind as usize));
            circle.write(place, first);
            circle.write(0, rest);
            at += piece.len() as u64;
        }
        self.publish(circle, len + 1, whole);
        Ok(true)
    }

    /// Announces to the reader that the next record arrives another way. Must not be called again
    /// before there [is room](Writer::has_room) for a reserve.
    pub fn divert(&mut self, circle: &impl Circle) {
        self.publish(circle, DIVERSION, WORD);
    }

    /// Whether `bytes` bytes are free.
    ///
    /// # Errors
    /// As for [`Writer::write`].
    pub fn has_room(&mut self, circle: &impl Circle, bytes: u64) -> Result<bool, Breach> {
        let fits = |taken: u64| self.written + bytes <= taken + circle.bytes();
        if fits(self.taken) {
            return Ok(true);
        }
        let taken = circle.taken().load(Ordering::Acquire);
        if taken < self.taken || taken > self.written {
            return Err(format!(
                "the reader of a ring claims to have taken {taken} bytes, not {} to {}",
                self.taken, self.written
            ));
        }
        let fits = fits(taken);
        self.taken = taken;
        Ok(fits)
    }

    fn publish(&mut self, circle: &impl Circle, header: u64, whole: u64) {
        let (this, _) = place(circle, self.written);
        let (next, _) = place(circle, self.written + whole);
        circle.header(next).store(0, Ordering::Relaxed);
        circle.header(this).store(header, Ordering::Release);
        self.written += whole;
    }
}

impl Reader {
    /// Whether there is a record.
    pub fn has_any(&self, circle: &impl Circle) -> bool {
        self.header(circle) != 0
    }

    /// Takes the next record: its bytes replace the buffer's contents.
    ///
    /// # Errors
    /// If the writer has stored an impossible length.
    pub fn read(&mut self, circle: &impl Circle, into: &mut Vec<u8>) -> Result<RingRead, Breach> {
        into.clear();
        let found = match self.header(circle) {
            0 => return Ok(RingRead::Nothing),
            DIVERSION => {
                self.taken += WORD;
                RingRead::Diversion
            }
            header => {
                self.take(circle, header - 1, into)?;
                RingRead::Record
            }
        };
        circle.taken().store(self.taken, Ordering::Release);
        Ok(found)
    }

    fn take(&mut self, circle: &impl Circle, len: u64, into: &mut Vec<u8>) -> Result<(), Breach> {
        if len > longest(circle) {
            return Err(format!(
                "a record of {len} bytes, but the ring holds at most {}",
                longest(circle)
            ));
        }
        let (place, behind) = place(circle, self.taken + WORD);
        circle.read(place, len.min(behind), into);
        circle.read(0, len - len.min(behind), into);
        self.taken += record(len);
        Ok(())
    }

    fn header(&self, circle: &impl Circle) -> u64 {
        let (place, _) = place(circle, self.taken);
        circle.header(place).load(Ordering::Acquire)
    }
}

/// The longest record that an empty ring takes, in bytes.
fn longest(circle: &impl Circle) -> u64 {
    circle.bytes() - RESERVE - WORD
}

/// The room that a record of `len` bytes occupies.
fn record(len: u64) -> u64 {
    WORD + len.next_multiple_of(WORD)
}

/// The place of a position in the circle, and the number of bytes from there to its end.
fn place(circle: &impl Circle, position: u64) -> (u64, u64) {
    let place = position % circle.bytes();
    (place, circle.bytes() - place)
}

#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(all(any(test, feature = "fuzzing"), not(loom)))]
pub(crate) mod words;
