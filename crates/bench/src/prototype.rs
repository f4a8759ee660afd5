//! Bare prototype of an all-reduce of two ranks on symmetric memory: the floor for comparison,
//! without the work that a library adds.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_kernels::{DType, Finish, ReduceOp};

use crate::TimedOperation;
use crate::control_block::{FLAG_BYTES, LOOKS, await_flag};
use crate::mapping::Mapping;

const PAGE: usize = 4096;

/// Two processes, two flags. Each adds its half of both buffers, and writes the sum to both.
pub struct Prototype {
    mapping: Mapping,
    rank: usize,
    dtype: DType,
    elements: usize,
    number: u64,
}

impl Prototype {
    /// Opens the memory that both share, in a file that pairs may use one after another. `rank` is
    /// 0 or 1.
    ///
    /// # Errors
    /// The file cannot be mapped, or there is no such rank.
    pub fn open(path: &Path, rank: usize, dtype: DType, elements: usize) -> io::Result<Self> {
        if rank > 1 {
            let text = format!("rank {rank}: the prototype has two");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let mapping = Mapping::open(path, PAGE + 2 * stride(dtype, elements))?;
        // Both flags say the same once nobody is under way: how often a pair has met.
        let number = mapping.word(rank * FLAG_BYTES).load(Ordering::Acquire);
        Ok(Self {
            mapping,
            rank,
            dtype,
            elements,
            number,
        })
    }

    /// Where this rank's buffer begins.
    pub fn buffer(&self) -> *mut u8 {
        self.buffer_of(self.rank)
    }

    fn buffer_of(&self, rank: usize) -> *mut u8 {
        self.mapping
            .at(PAGE + rank * stride(self.dtype, self.elements))
    }

    /// Tells the other rank that this one is here, and waits for it.
    fn meet(&mut self) {
        self.number += 1;
        self.flag(self.rank).store(self.number, Ordering::Release);
        await_flag(self.flag(1 - self.rank), self.number, LOOKS);
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
        // SAFETY: the halves lie within the mapping. Both ranks have entered, none has left: of
        // these elements the other one reads and writes nothing, and rewrites them only after the
        // second meeting.
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
