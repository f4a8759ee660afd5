//! The interface of an instruction level to kernels, and the portable level.

use crate::block::{read_with, write_with};
use crate::half_float::{f16_to_f32, f32_to_f16};

/// A kernel with its arguments.
pub(crate) trait KernelJob {
    /// Does it. Always inlined, into a function that may use the instructions of `I`.
    ///
    /// # Safety
    /// The processor has the instructions of `I`, and the job's pointers are good for what it does.
    unsafe fn run<I: Isa>(self);
}

/// The operations that differ between levels by more than the compilation of the same loops.
pub(crate) trait Isa {
    /// Reads a block of binary16.
    ///
    /// # Safety
    /// The processor has these instructions, and `W` elements can be read at `src`.
    unsafe fn read_f16<const W: usize>(src: *const u8, block: &mut [f32; W]);

    /// Rounds a block to binary16 and writes it to every destination, at this byte offset.
    ///
    /// # Safety
    /// The processor has these instructions, and `W` elements can be written there.
    unsafe fn write_f16<const W: usize>(block: &[f32; W], dsts: &[*mut u8], offset: usize);
}

/// Only the instructions of every processor of this architecture.
pub(crate) struct Portable;

impl Isa for Portable {
    #[inline(always)]
    unsafe fn read_f16<const W: usize>(src: *const u8, block: &mut [f32; W]) {
        // SAFETY: the caller's promise.
        unsafe { read_with(src, block, f16_to_f32) }
    }

    #[inline(always)]
    unsafe fn write_f16<const W: usize>(block: &[f32; W], dsts: &[*mut u8], offset: usize) {
        // SAFETY: the caller's promise.
        unsafe { write_with(block, dsts, offset, f32_to_f16) }
    }
}
