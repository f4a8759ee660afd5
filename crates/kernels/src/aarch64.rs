//! Instruction-set levels of aarch64: NEON, and SVE where vectors are longer than NEON's.

use std::arch::asm;

use crate::block::write_with;
use crate::half_float::canonical;
use crate::isa::{Isa, KernelJob};

/// NEON (Advanced SIMD), which every processor of this architecture has.
pub(crate) struct Neon;

impl Isa for Neon {
    #[inline(always)]
    unsafe fn read_f16<const W: usize>(src: *const u8, block: &mut [f32; W]) {
        const { assert!(W.is_multiple_of(8)) };
        for (i, numbers) in block.as_chunks_mut().0.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { widen_8(src.wrapping_add(2 * 8 * i), numbers) };
        }
    }

    #[inline(always)]
    unsafe fn write_f16<const W: usize>(block: &[f32; W], dsts: &[*mut u8], offset: usize) {
        let mut numbers = [0.0; W];
        for (number, x) in numbers.iter_mut().zip(block) {
            *number = canonical(*x);
        }
        let mut halves = [0u16; W];
        for (numbers, halves) in numbers.as_chunks().0.iter().zip(halves.as_chunks_mut().0) {
            narrow_8(numbers, halves);
        }
        // SAFETY: the caller's promise.
        unsafe { write_with(&halves, dsts, offset, |half| half) }
    }
}

/// SVE: the same loops, which the compiler makes vectors of any length of.
pub(crate) struct Sve;

impl Sve {
    /// Whether this processor (and operating system) has it, with vectors longer than NEON's.
    pub(crate) fn is_wider() -> bool {
        const NEON_BYTES: u64 = 16;
        // SAFETY: the processor has SVE where this is called.
        std::arch::is_aarch64_feature_detected!("sve") && unsafe { vector_bytes() } > NEON_BYTES
    }

    /// Runs a job, compiled for these instructions.
    ///
    /// # Safety
    /// The processor has SVE, and the job's own requirements.
    #[target_feature(enable = "sve")]
    pub(crate) unsafe fn run<J: KernelJob>(job: J) {
        // SAFETY: the caller's promise; a processor with SVE has NEON.
        unsafe { job.run::<Neon>() }
    }
}

/// The length of a vector of SVE in bytes.
///
/// # Safety
/// The processor has SVE.
#[target_feature(enable = "sve")]
unsafe fn vector_bytes() -> u64 {
    let bytes;
    // SAFETY: reads a length into a register.
    unsafe { asm!("cntb {}", out(reg) bytes, options(nomem, nostack, preserves_flags, pure)) };
    bytes
}

/// Reads 8 binary16 numbers. (Rust has no type for vectors of them that is stable.)
///
/// # Safety
/// They can be read at `src`.
#[inline(always)]
unsafe fn widen_8(src: *const u8, numbers: &mut [f32; 8]) {
    // SAFETY: reads 16 bytes, by the caller's promise, and writes 32 bytes, the array's.
    unsafe {
        asm!(
            "ldr {halves:q}, [{src}]",
            "fcvtl {low:v}.4s, {halves:v}.4h",
            "fcvtl2 {high:v}.4s, {halves:v}.8h",
            "stp {low:q}, {high:q}, [{dst}]",
            src = in(reg) src,
            dst = in(reg) numbers.as_mut_ptr(),
            halves = out(vreg) _,
            low = out(vreg) _,
            high = out(vreg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// Rounds 8 numbers to binary16, to nearest even, as the floating-point environment says.
#[inline(always)]
fn narrow_8(numbers: &[f32; 8], halves: &mut [u16; 8]) {
    // SAFETY: reads and writes no more than the arrays.
    unsafe {
        asm!(
            "ldp {low:q}, {high:q}, [{src}]",
            "fcvtn {narrow:v}.4h, {low:v}.4s",
            "fcvtn2 {narrow:v}.8h, {high:v}.4s",
            "str {narrow:q}, [{dst}]",
            src = in(reg) numbers.as_ptr(),
            dst = in(reg) halves.as_mut_ptr(),
            low = out(vreg) _,
            high = out(vreg) _,
            narrow = out(vreg) _,
            options(nostack, preserves_flags),
        );
    }
}
