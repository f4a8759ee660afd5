//! What happens next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::share::{Amount, BundleId, Ending};

/// Times closer than this share of themselves are the same: what happens at once happens in one turn, whatever the last digits say.
const SAME: f64 = 1e-12;

/// Something that happens at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Occurrence {
    /// A flow of this bundle ends, unless this version of its rates is out of date.
    Ending(BundleId, u32),
    /// A rank's thread is done with what it does, or begins.
    Thread(u32),
    /// A message can be seen by its receiver.
    Arrival(u32),
    /// A line has spent what it had saved up.
    Spent,
}

/// Occurrences in the order of their times, and of being noted.
#[derive(Default)]
pub(crate) struct Agenda {
    heap: BinaryHeap<Reverse<(Amount, u64, Occurrence)>>,
    noted: u64,
}

impl Agenda {
    pub(crate) fn note(&mut self, time: f64, occurrence: Occurrence) {
        self.noted += 1;
        self.heap
            .push(Reverse((Amount(time), self.noted, occurrence)));
    }

    pub(crate) fn note_ending(&mut self, ending: &Ending) {
        self.note(
            ending.time,
            Occurrence::Ending(ending.bundle, ending.version),
        );
    }

    /// Takes everything that happens next, at one time, and says when. `None` if nothing does.
    pub(crate) fn take_next(&mut self, taken: &mut Vec<Occurrence>) -> Option<f64> {
        let Reverse((Amount(time), _, first)) = self.heap.pop()?;
        taken.push(first);
        while let Some(Reverse((next, _, occurrence))) = self.heap.peek()
            && next.0 <= time * (1.0 + SAME)
        {
            taken.push(*occurrence);
            self.heap.pop();
        }
        Some(time)
    }

    /// How much was noted so far.
    pub(crate) fn noted(&self) -> u64 {
        self.noted
    }
}
