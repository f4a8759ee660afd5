//! Bare prototype of an all-reduce of two ranks on symmetric memory: a floor without the work that
//! a library adds.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_kernels::{DType, Finish, ReduceOp};

use crate::TimedOperation;
use crate::control_block::{FLAG_BYTES, POLLS, await_flag};
use crate::mapping::Mapping;

const PAGE: usize = 4096;

/// An all-reduce of two processes with two flags. Each adds its half of both buffers, and writes
/// the sum to both.
pub struct Prototype {
    mapping: Mapping,
    rank: usize,
    dtype: DType,
    elements: usize,
    number: u64,
}

impl Prototype {
    /// Opens the shared memory in a file, which pairs of processes may use one after another.
    /// `rank` is 0 or 1.
    ///
    /// # Errors
    ///
    /// If the file cannot be mapped, or `rank` is invalid.
    pub fn open(path: &Path, rank: usize, dtype: DType, elements: usize) -> io::Result<Self> {
        if rank > 1 {
            let text = format!("rank {rank}: the prototype has two");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let mapping = Mapping::open(path, PAGE + 2 * stride(dtype, elements))?;
        // Between calls both flags are equal: the number of meetings so far.
        let number = mapping.word(rank * FLAG_BYTES).load(Ordering::Acquire);
        Ok(Self {
            mapping,
            rank,
            dtype,
            elements,
            number,
        })
    }

    /// The first byte of this rank's buffer.
    pub fn buffer(&self) -> *mut u8 {
        self.buffer_of(self.rank)
    }

    fn buffer_of(&self, rank: usize) -> *mut u8 {
        self.mapping
            .at(PAGE + rank * stride(self.dtype, self.elements))
    }

    /// Notifies the other rank that this one has arrived, and waits for it.
    fn meet(&mut self) {
        self.number += 1;
        self.flag(self.rank).store(self.number, Ordering::Release);
        await_flag(self.flag(1 - self.rank), self.number, POLLS);
    }

    fn flag(&self, rank: usize) -> &AtomicU64 {
        self.mapping.word(rank * FLAG_BYTES)
    }
}

impl TimedOperation for Prototype {
    fn call(&mut self) -> Result<(), String> {
        let half = self.elements / 2;
        let (first, count) = match self.rank {
            0 => (0, half),
            _ => (half, self.elements - half),
        };
        let offset = first * self.dtype.size();
        let both = [0, 1].map(|rank| self.buffer_of(rank).wrapping_add(offset));
        let sources = both.map(|buffer| buffer.cast_const());
        self.meet();
        // SAFETY: the halves are within the mapping. Both ranks have entered and none has left: the
        // other rank does not access these elements before the second meeting.
        unsafe {
            weft_kernels::reduce(
                self.dtype,
                ReduceOp::Sum,
                &both,
                &sources,
                count,
                Finish::Keep,
            );
        };
        self.meet();
        Ok(())
    }
}

/// The distance of the two buffers: whole pages.
fn stride(dtype: DType, elements: usize) -> usize {
    (elements * dtype.size()).next_multiple_of(PAGE)
}
