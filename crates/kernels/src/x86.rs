//! AVX2 and AVX-512.

use crate::block::{read_with, write_with};
use crate::half_float::{f16_to_f32, f32_to_f16};
use crate::level::{Isa, Job};

/// AVX2 and F16C.
pub(crate) struct Avx2;

impl Avx2 {
    /// Whether this processor (and operating system) has it.
    pub(crate) fn detected() -> bool {
        is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c")
    }

    /// Runs a job, compiled for these instructions.
    ///
    /// # Safety
    /// [`Avx2::detected`], and the job's own requirements.
    #[target_feature(enable = "avx2,f16c")]
    pub(crate) unsafe fn run<J: Job>(job: J) {
        // SAFETY: the caller's promise.
        unsafe { job.run::<Avx2>() }
    }
}

impl Isa for Avx2 {
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
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c")]
    pub(crate) unsafe fn run<J: Job>(job: J) {
        // SAFETY: the caller's promise.
        unsafe { job.run::<Avx512>() }
    }
}

impl Isa for Avx512 {
    #[inline(always)]
    unsafe fn read_f16<const W: usize>(src: *const u8, block: &mut [f32; W]) {
        // SAFETY: the caller's promise.
        unsafe { Avx2::read_f16(src, block) }
    }

    #[inline(always)]
    unsafe fn write_f16<const W: usize>(block: &[f32; W], dsts: &[*mut u8], offset: usize) {
        // SAFETY: the caller's promise.
        unsafe { Avx2::write_f16(block, dsts, offset) }
    }
}
