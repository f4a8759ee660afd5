//! The arguments of a system call that sends.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;

/// The most slices of one system call.
const SLICES_MAX: usize = 32;

/// Bytes in several places, in the order in which they are sent.
pub(crate) struct Slices<'a> {
    slices: [IoSlice<'a>; SLICES_MAX],
    pub(crate) count: usize,
    /// Something did not fit: later bytes must not be added.
    pub(crate) full: bool,
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
    /// Adds bytes if there is room. Empty slices need no room.
    pub(crate) fn add(&mut self, bytes: &'a [u8]) {
        if bytes.is_empty() {
            return;
        }
        self.full |= self.count == SLICES_MAX;
        if !self.full {
            self.slices[self.count] = IoSlice::new(bytes);
            self.count += 1;
        }
    }

    pub(crate) fn add_queue(&mut self, queue: &'a VecDeque<u8>) {
        self.add_part(queue, 0..queue.len());
    }

    /// Adds a range of a queue.
    pub(crate) fn add_part(&mut self, queue: &'a VecDeque<u8>, range: Range<usize>) {
        let (front, back) = queue.as_slices();
        let split = front.len();
        self.add(&front[range.start.min(split)..range.end.min(split)]);
        self.add(&back[range.start.max(split) - split..range.end.max(split) - split]);
    }

    pub(crate) fn filled(&self) -> &[IoSlice<'a>] {
        &self.slices[..self.count]
    }
}
