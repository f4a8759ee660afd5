//! Where frames lie in a ring, and how many more it takes: both ends count the same way.
//!
//! A ring belongs to the receiver; the sender writes each frame behind the last, in one piece, and
//! tells its length. Before the frames lie two words that the *other* direction's receiver writes:
//! what it has taken in so far. That is what the sender may use again.

use std::collections::VecDeque;

/// The bytes of a ring that frames lie in.
pub(crate) const RING_BYTES: u64 = 512 << 10;
/// In front of them: how far the peer has come with the other ring.
pub(crate) const HEADER_BYTES: u64 = 64;
/// Frames that may lie in a ring.
pub(crate) const FRAMES_MAX: u64 = 256;
/// The receiver tells after such a part of either.
const TOLD_PARTS: u64 = 4;
/// How often it may tell before anybody looks.
pub(crate) const TELLINGS_MAX: u64 = 3 * TOLD_PARTS;
/// Where frames begin.
const ALIGNMENT: u64 = 64;

/// How far somebody has come: in bytes, those included that were left free at the ring's end, and
/// in frames.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Position {
    pub(crate) bytes: u64,
    pub(crate) frames: u64,
}

impl Position {
    /// Behind a frame of this length, and where in the ring that begins.
    fn behind(self, len: u64) -> (Position, u64) {
        let padded = len.next_multiple_of(ALIGNMENT);
        let at = self.bytes % RING_BYTES;
        let skipped = match at + padded <= RING_BYTES {
            true => 0,
            false => RING_BYTES - at,
        };
        let start = self.bytes + skipped;
        let position = Position {
            bytes: start + padded,
            frames: self.frames + 1,
        };
        (position, start % RING_BYTES)
    }
}

/// The sender's side.
#[derive(Default, Debug)]
pub(crate) struct Outbound {
    sent: Position,
    taken: Position,
}

impl Outbound {
    /// Where a frame of this length goes, if there is room.
    pub(crate) fn place(&mut self, len: usize) -> Option<u64> {
        let (sent, start) = self.sent.behind(len as u64);
        let fits = sent.bytes - self.taken.bytes <= RING_BYTES
            && sent.frames - self.taken.frames <= FRAMES_MAX;
        fits.then(|| {
            self.sent = sent;
            start
        })
    }

    /// What the receiver has told. False if it has taken what was never sent.
    pub(crate) fn taken(&mut self, taken: Position) -> bool {
        self.taken = taken;
        taken.bytes <= self.sent.bytes && taken.frames <= self.sent.frames
    }
}

/// The receiver's side.
#[derive(Default, Debug)]
pub(crate) struct Inbound {
    /// The lengths of frames that lie in the ring: at most [`FRAMES_MAX`].
    lying: VecDeque<u32>,
    taken: Position,
    told: Position,
}

impl Inbound {
    /// A frame has come. False if there would be more than the sender may have there.
    pub(crate) fn arrive(&mut self, len: u32) -> bool {
        let may = (self.lying.len() as u64) < FRAMES_MAX;
        if may {
            self.lying.push_back(len);
        }
        may
    }

    /// The length of the next frame, if one is there, and where it lies: nowhere if it would be
    /// longer than a ring.
    pub(crate) fn next(&self) -> Option<(u64, Option<u64>)> {
        let len = u64::from(*self.lying.front()?);
        Some((len, (len <= RING_BYTES).then(|| self.taken.behind(len).1)))
    }

    /// The next frame is taken in.
    pub(crate) fn take(&mut self) {
        if let Some(len) = self.lying.pop_front() {
            self.taken = self.taken.behind(len.into()).0;
        }
    }

    /// Forgets what is there.
    pub(crate) fn clear(&mut self) {
        self.lying.clear();
    }

    /// How many frames were taken in.
    pub(crate) fn frames(&self) -> u64 {
        self.taken.frames
    }

    /// What the sender is to be told now, if it is.
    pub(crate) fn due(&self) -> Option<Position> {
        let due = self.taken.bytes - self.told.bytes >= RING_BYTES / TOLD_PARTS
            || self.taken.frames - self.told.frames >= FRAMES_MAX / TOLD_PARTS;
        due.then_some(self.taken)
    }

    /// It was told.
    pub(crate) fn told(&mut self) {
        self.told = self.taken;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames of all lengths, as fast as the ring takes them: no two that lie in it overlap, and
    /// the receiver finds each where it was put.
    #[test]
    fn both_ends_find_the_same_places() {
        let (mut outbound, mut inbound) = (Outbound::default(), Inbound::default());
        let mut lying: VecDeque<(u64, u64)> = VecDeque::new();
        let mut length = 1_u64;
        for _ in 0..10_000 {
            length = (length * 7919 + 13) % 65_700 + 1;
            while let Some(start) = outbound.place(length as usize) {
                let end = start + length;
                assert!(end <= RING_BYTES);
                assert!(lying.iter().all(|(s, l)| end <= *s || s + l <= start));
                lying.push_back((start, length));
                assert!(inbound.arrive(length as u32));
                assert!(lying.len() as u64 <= FRAMES_MAX);
                length = (length * 31 + 7) % 900 + 1;
            }
            let (start, len) = lying
                .pop_front()
                .expect("a ring that is full holds something");
            assert_eq!(inbound.next(), Some((len, Some(start))));
            inbound.take();
            if let Some(position) = inbound.due() {
                inbound.told();
                assert!(outbound.taken(position));
            }
        }
        inbound.clear();
        assert!(inbound.arrive(RING_BYTES as u32 + 1));
        assert_eq!(inbound.next(), Some((RING_BYTES + 1, None)));
        let never = Position {
            bytes: u64::MAX,
            frames: 0,
        };
        assert!(!outbound.taken(never));
    }

    #[test]
    fn a_sender_that_does_not_wait_for_room_gains_none() {
        let mut inbound = Inbound::default();
        let kept = (0..1_000_000).filter(|_| inbound.arrive(64)).count();
        assert_eq!(kept as u64, FRAMES_MAX);
        inbound.take();
        assert!(inbound.arrive(64) && !inbound.arrive(64));
    }
}
