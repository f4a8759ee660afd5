//! Positions of frames in a ring, and its free room: both ends compute them in the same way.
//!
//! A ring belongs to the receiver; the sender writes each frame behind the last, contiguously, and
//! reports its length. Before the frames are two words that the receiver of the *other* direction
//! writes: its position. The sender may reuse the room up to there.

use std::collections::VecDeque;

/// The bytes of a ring for frames.
pub(crate) const RING_BYTES: u64 = 512 << 10;
/// The bytes before them: the peer's position in the other ring.
pub(crate) const HEADER_BYTES: u64 = 64;
/// The most frames in a ring.
pub(crate) const FRAMES_MAX: u64 = 256;
/// The receiver reports after this fraction of either limit.
const REPORTED_PARTS: u64 = 4;
/// The most reports before the peer reads them.
pub(crate) const REPORTS_MAX: u64 = 3 * REPORTED_PARTS;
/// The alignment of frames.
const ALIGNMENT: u64 = 64;

/// A position: in bytes, including those left free at the ring's end, and in frames.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Position {
    pub(crate) bytes: u64,
    pub(crate) frames: u64,
}

impl Position {
    /// The position behind a frame of this length, and the frame's offset in the ring.
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
    /// The offset for a frame of this length, if there is room.
    pub(crate) fn place(&mut self, len: usize) -> Option<u64> {
        let (sent, start) = self.sent.behind(len as u64);
        let fits = sent.bytes - self.taken.bytes <= RING_BYTES
            && sent.frames - self.taken.frames <= FRAMES_MAX;
        fits.then(|| {
            self.sent = sent;
            start
        })
    }

    /// Applies the receiver's report. False if it has taken data that was never sent.
    pub(crate) fn taken(&mut self, taken: Position) -> bool {
        self.taken = taken;
        taken.bytes <= self.sent.bytes && taken.frames <= self.sent.frames
    }
}

/// The receiver's side.
#[derive(Default, Debug)]
pub(crate) struct Inbound {
    /// The lengths of the frames in the ring: at most [`FRAMES_MAX`].
    lengths: VecDeque<u32>,
    taken: Position,
    reported: Position,
}

impl Inbound {
    /// Adds a received frame. False if there would be more than the sender may have there.
    pub(crate) fn arrive(&mut self, len: u32) -> bool {
        let may = (self.lengths.len() as u64) < FRAMES_MAX;
        if may {
            self.lengths.push_back(len);
        }
        may
    }

    /// The length of the next frame, if there is one, and its offset: None if it would be longer
    /// than a ring.
    pub(crate) fn next(&self) -> Option<(u64, Option<u64>)> {
        let len = u64::from(*self.lengths.front()?);
        Some((len, (len <= RING_BYTES).then(|| self.taken.behind(len).1)))
    }

    /// Removes the next frame.
    pub(crate) fn take(&mut self) {
        if let Some(len) = self.lengths.pop_front() {
            self.taken = self.taken.behind(len.into()).0;
        }
    }

    /// Removes all frames.
    pub(crate) fn clear(&mut self) {
        self.lengths.clear();
    }

    /// The number of frames that were removed.
    pub(crate) fn frames(&self) -> u64 {
        self.taken.frames
    }

    /// The position to report to the sender now, if a report is due.
    pub(crate) fn due(&self) -> Option<Position> {
        let due = self.taken.bytes - self.reported.bytes >= RING_BYTES / REPORTED_PARTS
            || self.taken.frames - self.reported.frames >= FRAMES_MAX / REPORTED_PARTS;
        due.then_some(self.taken)
    }

    /// Records the report.
    pub(crate) fn reported(&mut self) {
        self.reported = self.taken;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames of all lengths, as fast as the ring accepts them: frames in it never overlap, and the
    /// receiver finds each where it was put.
    #[test]
    fn both_ends_find_the_same_places() {
        let (mut outbound, mut inbound) = (Outbound::default(), Inbound::default());
        let mut lengths: VecDeque<(u64, u64)> = VecDeque::new();
        let mut length = 1_u64;
        for _ in 0..10_000 {
            length = (length * 7919 + 13) % 65_700 + 1;
            while let Some(start) = outbound.place(length as usize) {
                let end = start + length;
                assert!(end <= RING_BYTES);
                assert!(lengths.iter().all(|(s, l)| end <= *s || s + l <= start));
                lengths.push_back((start, length));
                assert!(inbound.arrive(length as u32));
                assert!(lengths.len() as u64 <= FRAMES_MAX);
                length = (length * 31 + 7) % 900 + 1;
            }
            let (start, len) = lengths.pop_front().expect("a full ring holds a frame");
            assert_eq!(inbound.next(), Some((len, Some(start))));
            inbound.take();
            if let Some(position) = inbound.due() {
                inbound.reported();
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
    fn sender_cannot_exceed_the_room() {
        let mut inbound = Inbound::default();
        let kept = (0..1_000_000).filter(|_| inbound.arrive(64)).count();
        assert_eq!(kept as u64, FRAMES_MAX);
        inbound.take();
        assert!(inbound.arrive(64) && !inbound.arrive(64));
    }
}
