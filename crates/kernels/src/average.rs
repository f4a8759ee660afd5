//! Averages of 16-bit floats, whose sums in transit reach beyond the range of their type.
//!
//! [Note: Sums in transit] An average is never larger than the largest contribution, but the sum of
//! some of them is, and it travels in 16 bits. Dividing first would round numbers near zero away.
//! So a sum is kept as any other number where the type can hold it, with the same rounding; larger
//! ones take the NaN patterns other than the one that is written for every NaN: 1022 of either sign
//! for binary16, 126 for bfloat16. They cover the range from the end of the type's range to `n`
//! times that, evenly in the bits of an `f64`, so nearly by equal factors: of n contributions a
//! rounding costs up to about log2 n times what it costs within the range. A contribution may be
//! any NaN, so the caller says which sources are sums.

use std::marker::PhantomData;
use std::sync::atomic::{Ordering, compiler_fence};

use crate::block::block_elements;
use crate::element::{Bf16, F16, Number};
use crate::half_float::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16, f64_to_f32_odd};
use crate::isa::Isa;
use crate::sweep::{BlockKernel, Sweep};
use crate::{DType, IsaLevel};

/// One reduction on the way to an average.
#[derive(Clone, Copy, Debug)]
pub struct AverageStep<'a> {
    /// How many contributions the average has: at least 1.
    pub contributions: u32,
    /// Whether all of them are in, so that the average is written.
    pub is_last: bool,
    /// By source: whether it is a sum that an earlier step has written. The others, and those that
    /// it does not reach to, are contributions.
    pub sums: &'a [bool],
}

/// Adds the sources in the order given and writes the sum, or the average, to every destination.
///
/// The average is finite if all contributions are. Where every sum lies in the range of the type,
/// the bits are those of [`reduce`](crate::reduce()).
///
/// # Panics
/// If there is no source, or `dtype` is no 16-bit float.
///
/// # Safety
/// That of [`reduce`](crate::reduce()).
pub unsafe fn average_halves(
    dtype: DType,
    dsts: &[*mut u8],
    srcs: &[*const u8],
    elements: usize,
    step: AverageStep<'_>,
) {
    // SAFETY: the caller's promise; the best level is an available one.
    unsafe { IsaLevel::best().average_halves(dtype, dsts, srcs, elements, step) }
}

impl IsaLevel {
    /// [`average_halves`](crate::average_halves()) at this level.
    ///
    /// # Panics
    /// As there.
    ///
    /// # Safety
    /// As there, and this level is among [`IsaLevel::available`].
    pub unsafe fn average_halves(
        self,
        dtype: DType,
        dsts: &[*mut u8],
        srcs: &[*const u8],
        elements: usize,
        step: AverageStep<'_>,
    ) {
        assert!(!srcs.is_empty(), "an average needs at least one source");
        match dtype {
            // SAFETY: the caller's promise.
            DType::F16 => unsafe {
                self.halves::<F16, { block_elements(4) }>(dsts, srcs, elements, step)
            },
            // SAFETY: the caller's promise.
            DType::Bf16 => unsafe {
                self.halves::<Bf16, { block_elements(2) }>(dsts, srcs, elements, step)
            },
            _ => panic!("{dtype} is no 16-bit float"),
        }
    }

    /// # Safety
    /// That of [`IsaLevel::average_halves`].
    unsafe fn halves<E: Half, const W: usize>(
        self,
        dsts: &[*mut u8],
        srcs: &[*const u8],
        elements: usize,
        step: AverageStep<'_>,
    ) {
        let kernel = Averaging::<E> {
            step,
            element: PhantomData,
        };
        let sweep = Sweep::<_, W> {
            dsts,
            srcs,
            elements,
            kernel,
        };
        // SAFETY: the caller's promise.
        unsafe { self.run(sweep) }
    }
}

/// A 16-bit float.
pub(crate) trait Half: Number<Wide = f32, Divisor = f32> {
    /// The bits of infinity. Patterns above are NaNs.
    const INFINITY: u16;
    /// The bits of the NaN that is written for every NaN.
    const NAN: u16;
    /// The bits of the smallest `f32` that is rounded to infinity.
    const OVERFLOW: u32;
    /// The power of two at the end of the range.
    const END: f64;

    fn widen(bits: u16) -> f32;
    fn narrow(value: f32) -> u16;

    /// The number of patterns for sums beyond the range.
    const PATTERNS: u64 = (0x7fff - Self::INFINITY - 1) as u64;

    /// The bits of the first `f64` beyond the range, and those of the numbers up to `contributions`
    /// times it.
    fn beyond(contributions: u32) -> (u64, u64) {
        let end = Self::END.to_bits();
        let last = Self::END * f64::from(contributions.max(2));
        (end, last.to_bits() - end)
    }

    /// The encoding of a sum.
    fn encode(sum: f64, contributions: u32) -> u16 {
        if sum.is_nan() {
            return Self::NAN;
        }
        if sum.abs() < f64::from(f32::from_bits(Self::OVERFLOW)) {
            return Self::narrow(f64_to_f32_odd(sum));
        }
        let sign = u16::from(sum.is_sign_negative()) << 15;
        if sum.is_infinite() {
            return sign | Self::INFINITY;
        }
        let (end, span) = Self::beyond(contributions);
        let above = sum.abs().to_bits().saturating_sub(end).min(span);
        let steps = u128::from(Self::PATTERNS - 1);
        let index = (u128::from(above) * steps + u128::from(span / 2)) / u128::from(span);
        let pattern = Self::INFINITY + 1 + index as u16;
        sign | (pattern + u16::from(pattern >= Self::NAN))
    }

    /// The number that a sum's pattern stands for.
    fn decode(bits: u16, contributions: u32) -> f64 {
        let pattern = bits & 0x7fff;
        if pattern <= Self::INFINITY || pattern == Self::NAN {
            return Self::widen(bits).into();
        }
        let index = pattern - u16::from(pattern > Self::NAN) - Self::INFINITY - 1;
        let (end, span) = Self::beyond(contributions);
        let above = u128::from(span) * u128::from(index) / u128::from(Self::PATTERNS - 1);
        let magnitude = f64::from_bits(end + above as u64);
        if bits >> 15 == 0 {
            magnitude
        } else {
            -magnitude
        }
    }
}

impl Half for F16 {
    const INFINITY: u16 = 0x7c00;
    const NAN: u16 = 0x7e00;
    const OVERFLOW: u32 = 0x477f_f000;
    const END: f64 = 65536.0;

    fn widen(bits: u16) -> f32 {
        f16_to_f32(bits)
    }

    fn narrow(value: f32) -> u16 {
        f32_to_f16(value)
    }
}

impl Half for Bf16 {
    const INFINITY: u16 = 0x7f80;
    const NAN: u16 = 0x7fc0;
    const OVERFLOW: u32 = 0x7f7f_8000;
    const END: f64 = f64::from_bits((1023 + 128) << 52);

    fn widen(bits: u16) -> f32 {
        bf16_to_f32(bits)
    }

    fn narrow(value: f32) -> u16 {
        f32_to_bf16(value)
    }
}

/// Adds elements `E`.
struct Averaging<'a, E> {
    step: AverageStep<'a>,
    element: PhantomData<E>,
}

impl<E: Half, const W: usize> BlockKernel<W> for Averaging<'_, E> {
    const READ: usize = 2;
    const WRITE: usize = 2;

    #[inline(always)]
    unsafe fn block<I: Isa>(
        &self,
        srcs: impl Iterator<Item = *const u8> + Clone,
        dsts: &[*mut u8],
        offset: usize,
    ) {
        let mut sum = [0.0; W];
        for (number, src) in srcs.clone().enumerate() {
            // As in other reductions: keeps the compiler from vectorising this loop of few turns.
            compiler_fence(Ordering::Acquire);
            let mut next = [0.0; W];
            // SAFETY: the caller's promise.
            unsafe { E::load::<I, W>(src, &mut next) };
            if number == 0 {
                sum = next;
                continue;
            }
            for (a, b) in sum.iter_mut().zip(next) {
                *a += b;
            }
        }
        let limit = self.limit();
        let beyond = (sum.iter()).fold(false, |any, x| any | !within(*x, limit));
        if beyond {
            // SAFETY: the caller's promise.
            return unsafe { self.one_by_one::<W>(srcs, dsts, offset) };
        }
        if self.step.is_last {
            let divisor = E::divisor(self.step.contributions);
            for x in &mut sum {
                *x = E::average(*x, divisor);
            }
        }
        // SAFETY: the caller's promise.
        unsafe { E::store::<I, W>(&sum, dsts, offset) };
    }
}

/// Whether a sum is no NaN, and below a limit.
#[inline(always)]
fn within(sum: f32, limit: f32) -> bool {
    sum.abs() < limit
}

impl<E: Half> Averaging<'_, E> {
    /// The magnitude below which a sum of `f32` is right. Patterns of larger sums are NaN for
    /// ordinary conversions, and so are sums with them.
    #[inline(always)]
    fn limit(&self) -> f32 {
        match self.step.is_last {
            true => f32::INFINITY,
            false => f32::from_bits(E::OVERFLOW),
        }
    }

    /// A block in which some sum is beyond the range. The others get the same bits as elsewhere.
    ///
    /// # Safety
    /// That of [`BlockKernel::block`].
    #[cold]
    #[inline(never)]
    unsafe fn one_by_one<const W: usize>(
        &self,
        srcs: impl Iterator<Item = *const u8> + Clone,
        dsts: &[*mut u8],
        offset: usize,
    ) {
        let mut narrow = [0.0_f32; W];
        let mut wide = [0.0_f64; W];
        for (number, src) in srcs.enumerate() {
            let is_sum = self.step.sums.get(number).copied().unwrap_or(false);
            for (index, (narrow, wide)) in narrow.iter_mut().zip(&mut wide).enumerate() {
                let src = src.cast::<u16>().wrapping_add(index);
                // SAFETY: the caller's promise, as index < W.
                let bits = unsafe { src.read_unaligned() };
                let (a, b) = match is_sum {
                    true => (E::widen(bits), E::decode(bits, self.step.contributions)),
                    false => (E::widen(bits), E::widen(bits).into()),
                };
                (*narrow, *wide) = match number {
                    0 => (a, b),
                    _ => (*narrow + a, *wide + b),
                };
            }
        }
        let mut results = [0_u16; W];
        for (result, sums) in results.iter_mut().zip(narrow.into_iter().zip(wide)) {
            *result = self.result(sums);
        }
        for dst in dsts {
            let dst = dst.wrapping_add(offset).cast::<[u16; W]>();
            // SAFETY: the caller's promise.
            unsafe { dst.write_unaligned(results) };
        }
    }

    /// The encoding of a sum that is given as `f32` and as `f64`.
    fn result(&self, (narrow, wide): (f32, f64)) -> u16 {
        let AverageStep {
            contributions,
            is_last,
            ..
        } = self.step;
        match (within(narrow, self.limit()), is_last) {
            (true, false) => E::narrow(narrow),
            (true, true) => E::narrow(E::average(narrow, E::divisor(contributions))),
            (false, false) => E::encode(wide, contributions),
            (false, true) => {
                let average = wide / f64::from(contributions);
                let rounded = E::narrow(f64_to_f32_odd(average));
                // Finite contributions have a finite average: values beyond were rounded there.
                let overflown = average.is_finite() && rounded & 0x7fff == E::INFINITY;
                rounded - u16::from(overflown)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_patterns<E: Half>() {
        for contributions in [2, 3, 8, 1000] {
            for bits in 0..=u16::MAX {
                let value = E::decode(bits, contributions);
                let beyond = value.is_finite() && value.abs() >= E::END;
                let pattern = bits & 0x7fff;
                let expected = pattern > E::INFINITY && pattern != E::NAN;
                assert_eq!(beyond, expected, "{bits:#x}");
                if beyond {
                    assert_eq!(E::encode(value, contributions), bits, "of {contributions}");
                }
            }
            let factor = (f64::from(contributions).log2() + 1.0) / E::PATTERNS as f64;
            for hundredth in 100..100 * contributions.min(40) {
                let sum = E::END * f64::from(hundredth) / 100.0;
                let error = E::decode(E::encode(-sum, contributions), contributions) + sum;
                assert!(
                    error.abs() <= sum * factor,
                    "{sum} of {contributions}: {error}"
                );
            }
        }
    }

    #[test]
    fn sums_beyond_the_range_have_own_patterns() {
        check_patterns::<F16>();
        check_patterns::<Bf16>();
    }
}
