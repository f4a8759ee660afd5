//! Instruction-set levels, and the execution of a kernel at one of them.

use std::fmt;
use std::sync::OnceLock;

#[cfg(target_arch = "aarch64")]
use crate::aarch64::{Neon, Sve};
use crate::float_environment::FloatEnvironment;
use crate::isa::{KernelJob, Portable};
#[cfg(target_arch = "x86_64")]
use crate::x86::{Avx2, Avx512};

/// A level of instructions that every kernel is compiled for. Results are the same on all of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IsaLevel {
    /// The instructions of every processor of this architecture.
    Portable,
    /// NEON, with its conversions of binary16. Every processor of this architecture has it.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// SVE with vectors longer than NEON's.
    #[cfg(target_arch = "aarch64")]
    Sve,
    /// AVX2, F16C and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl IsaLevel {
    /// The levels that this processor has, the best one last.
    pub fn available() -> &'static [IsaLevel] {
        static AVAILABLE: OnceLock<Vec<IsaLevel>> = OnceLock::new();
        AVAILABLE.get_or_init(detect)
    }

    /// The best level that this processor has.
    pub fn best() -> IsaLevel {
        *IsaLevel::available()
            .last()
            .expect("the portable level is always there")
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            IsaLevel::Portable => "portable",
            #[cfg(target_arch = "aarch64")]
            IsaLevel::Neon => "NEON",
            #[cfg(target_arch = "aarch64")]
            IsaLevel::Sve => "SVE",
            #[cfg(target_arch = "x86_64")]
            IsaLevel::Avx2 => "AVX2",
            #[cfg(target_arch = "x86_64")]
            IsaLevel::Avx512 => "AVX-512",
        }
    }

    /// Runs a job with the instructions of this level.
    ///
    /// # Safety
    /// This processor has this level, and the pointers of the job are good for what it does.
    pub(crate) unsafe fn run(self, job: impl KernelJob) {
        let _guard = FloatEnvironment::set_default();
        // SAFETY: the caller's promise.
        unsafe { self.run_in_callers_environment(job) }
    }

    /// [`IsaLevel::run`] with the thread's own settings for rounding and subnormal numbers.
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn run_in_callers_environment(self, job: impl KernelJob) {
        match self {
            // SAFETY: the caller's promise.
            IsaLevel::Portable => unsafe { job.run::<Portable>() },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: the caller's promise.
            IsaLevel::Neon => unsafe { job.run::<Neon>() },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: the caller's promise.
            IsaLevel::Sve => unsafe { Sve::run(job) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the caller's promise.
            IsaLevel::Avx2 => unsafe { Avx2::run(job) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the caller's promise.
            IsaLevel::Avx512 => unsafe { Avx512::run(job) },
        }
    }
}

impl fmt::Display for IsaLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn detect() -> Vec<IsaLevel> {
    vec![IsaLevel::Portable]
}

#[cfg(target_arch = "aarch64")]
fn detect() -> Vec<IsaLevel> {
    let mut levels = vec![IsaLevel::Portable];
    if cfg!(miri) {
        return levels; // it knows no assembly
    }
    levels.push(IsaLevel::Neon);
    if Sve::is_wider() {
        levels.push(IsaLevel::Sve);
    }
    levels
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Vec<IsaLevel> {
    let mut levels = vec![IsaLevel::Portable];
    if Avx2::detected() {
        levels.push(IsaLevel::Avx2);
        if Avx512::detected() {
            levels.push(IsaLevel::Avx512);
        }
    }
    levels
}
