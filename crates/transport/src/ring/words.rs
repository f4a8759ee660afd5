//! A ring's memory, for tests and for fuzzing.

use super::{Circle, WORD};
use crate::sync::{AtomicU64, Ordering};

/// A ring in words that any thread may access. Initially filled with invalid values, except for the
/// first header.
pub(crate) struct RingWords {
    pub(crate) words: Vec<AtomicU64>,
    pub(crate) taken: AtomicU64,
}

impl RingWords {
    pub(crate) fn new(bytes: u64) -> RingWords {
        let nonsense = |word: u64| AtomicU64::new(if word == 0 { 0 } else { u64::MAX - word });
        RingWords {
            words: (0..bytes / WORD).map(nonsense).collect(),
            taken: AtomicU64::new(0),
        }
    }

    fn byte(&self, at: u64) -> (&AtomicU64, u64) {
        (&self.words[(at / WORD) as usize], 8 * (at % WORD))
    }
}

impl Circle for RingWords {
    fn bytes(&self) -> u64 {
        self.words.len() as u64 * WORD
    }

    fn header(&self, place: u64) -> &AtomicU64 {
        assert!(place.is_multiple_of(WORD));
        &self.words[(place / WORD) as usize]
    }

    fn taken(&self) -> &AtomicU64 {
        &self.taken
    }

    fn write(&self, place: u64, bytes: &[u8]) {
        for (at, byte) in (place..).zip(bytes) {
            let (word, shift) = self.byte(at);
            let others = word.load(Ordering::Relaxed) & !(0xff << shift);
            word.store(others | u64::from(*byte) << shift, Ordering::Relaxed);
        }
    }

    fn read(&self, place: u64, len: u64, into: &mut Vec<u8>) {
        for at in place..place + len {
            let (word, shift) = self.byte(at);
            into.push((word.load(Ordering::Relaxed) >> shift) as u8);
        }
    }
}
