//! Instruction-set levels of x86-64: AVX2 and AVX-512.

use std::arch::x86_64::*;

use crate::block::write_with;
use crate::half_float::canonical;
use crate::isa::{Isa, KernelJob};

/// AVX2, F16C and FMA.
pub(crate) struct Avx2;

impl Avx2 {
    /// Whether this processor (and operating system) has it.
    pub(crate) fn detected() -> bool {
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("f16c")
            && is_x86_feature_detected!("fma")
    }

    /// Runs a job, compiled for these instructions.
    ///
    /// # Safety
    /// [`Avx2::detected`], and the job's own requirements.
    #[target_feature(enable = "avx2,f16c,fma")]
    pub(crate) unsafe fn run<J: KernelJob>(job: J) {
        // SAFETY: the caller's promise.
        unsafe { job.run::<Avx2>() }
    }
}

impl Isa for Avx2 {
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
            // SAFETY: the caller's promise.
            unsafe { narrow_8(numbers, halves) };
        }
        // SAFETY: the caller's promise.
        unsafe { write_with(&halves, dsts, offset, |half| half) }
    }
}

/// AVX-512 F, BW, DQ and VL, on top of AVX2.
pub(crate) struct Avx512;

impl Avx512 {
    /// Whether this processor (and operating system) has it.
    pub(crate) fn detected() -> bool {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
    }

    /// Runs a job, compiled for these instructions.
    ///
    /// # Safety
    /// [`Avx512::detected`] and [`Avx2::detected`], and the job's own requirements.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c,fma")]
    pub(crate) unsafe fn run<J: KernelJob>(job: J) {
        // SAFETY: the caller's promise.
        unsafe { job.run::<Avx512>() }
    }
}

impl Isa for Avx512 {
    #[inline(always)]
    unsafe fn read_f16<const W: usize>(src: *const u8, block: &mut [f32; W]) {
        const { assert!(W.is_multiple_of(16)) };
        for (i, numbers) in block.as_chunks_mut().0.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { widen_16(src.wrapping_add(2 * 16 * i), numbers) };
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
            // SAFETY: the caller's promise.
            unsafe { narrow_16(numbers, halves) };
        }
        // SAFETY: the caller's promise.
        unsafe { write_with(&halves, dsts, offset, |half| half) }
    }
}

/// Reads 8 binary16 numbers.
///
/// # Safety
/// They can be read at `src`.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn widen_8(src: *const u8, numbers: &mut [f32; 8]) {
    // SAFETY: the caller's promise.
    let halves = unsafe { _mm_loadu_si128(src.cast()) };
    let widened = _mm256_cvtph_ps(halves);
    // SAFETY: the array has this size.
    unsafe { _mm256_storeu_ps(numbers.as_mut_ptr(), widened) };
}

/// Rounds 8 numbers to binary16.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn narrow_8(numbers: &[f32; 8], halves: &mut [u16; 8]) {
    // SAFETY: the array has this size.
    let numbers = unsafe { _mm256_loadu_ps(numbers.as_ptr()) };
    let rounded = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(numbers);
    // SAFETY: the array has this size.
    unsafe { _mm_storeu_si128(halves.as_mut_ptr().cast(), rounded) };
}

/// Reads 16 binary16 numbers.
///
/// # Safety
/// They can be read at `src`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn widen_16(src: *const u8, numbers: &mut [f32; 16]) {
    // SAFETY: the caller's promise.
    let halves = unsafe { _mm256_loadu_si256(src.cast()) };
    let widened = _mm512_cvtph_ps(halves);
    // SAFETY: the array has this size.
    unsafe { _mm512_storeu_ps(numbers.as_mut_ptr(), widened) };
}

/// Rounds 16 numbers to binary16.
#[inline]
#[target_feature(enable = "avx512f")]
fn narrow_16(numbers: &[f32; 16], halves: &mut [u16; 16]) {
    // SAFETY: the array has this size.
    let numbers = unsafe { _mm512_loadu_ps(numbers.as_ptr()) };
    let rounded = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(numbers);
    // SAFETY: the array has this size.
    unsafe { _mm256_storeu_si256(halves.as_mut_ptr().cast(), rounded) };
}
