//! 8-bit floats in blocks with one scale each: conversion from and to `f32`.
//!
//! A block is a scale as `f32`, and then up to [`SCALED_BLOCK`] bytes. The scale is the smallest
//! power of two with which the largest finite magnitude of the block does not overflow. So what
//! was decoded is encoded again as the same numbers: see the tests.

use std::marker::PhantomData;

use crate::IsaLevel;
use crate::isa::{Isa, KernelJob};

/// The elements of a block.
pub const SCALED_BLOCK: usize = 128;

const SIGN: u32 = 0x8000_0000;
const F32_INFINITY: u32 = 0x7f80_0000;

/// A type of 8-bit floats.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Float8 {
    /// 4 bits of exponent and 3 of mantissa. Infinities become NaN.
    E4m3,
    /// 5 bits of exponent and 2 of mantissa.
    E5m2,
}

impl Float8 {
    /// The bytes of this many elements, the first of which begins a block.
    pub const fn bytes(elements: usize) -> usize {
        elements + size_of::<f32>() * elements.div_ceil(SCALED_BLOCK)
    }

    /// Writes `f32` elements as blocks.
    ///
    /// # Safety
    /// `src` can be read for `elements` elements, `dst` written for [`Float8::bytes`] of them, and
    /// they do not overlap. The level is among [`IsaLevel::available`].
    pub(crate) unsafe fn encode(
        self,
        level: IsaLevel,
        dst: *mut u8,
        src: *const u8,
        elements: usize,
    ) {
        let conversion = Conversion { dst, src, elements };
        match self {
            // SAFETY: the caller's promise.
            Float8::E4m3 => unsafe { level.run(Encode::<E4m3>(conversion, PhantomData)) },
            // SAFETY: the caller's promise.
            Float8::E5m2 => unsafe { level.run(Encode::<E5m2>(conversion, PhantomData)) },
        }
    }

    /// Writes the elements of blocks as `f32`.
    ///
    /// # Safety
    /// As for [`Float8::encode`], with source and destination swapped.
    pub(crate) unsafe fn decode(
        self,
        level: IsaLevel,
        dst: *mut u8,
        src: *const u8,
        elements: usize,
    ) {
        let conversion = Conversion { dst, src, elements };
        match self {
            // SAFETY: the caller's promise.
            Float8::E4m3 => unsafe { level.run(Decode::<E4m3>(conversion, PhantomData)) },
            // SAFETY: the caller's promise.
            Float8::E5m2 => unsafe { level.run(Decode::<E5m2>(conversion, PhantomData)) },
        }
    }
}

/// The parameters of a type.
trait Format {
    /// Bits of the mantissa.
    const MANTISSA: u32;
    /// The bias of exponents.
    const BIAS: u32;
    /// The exponent of the largest number, which is 1.75 times that power of two.
    const EXPONENT_MAX: i32;
    /// The byte for infinity, or for NaN where there is none.
    const INFINITY: u8;
    /// The byte that is written for every NaN.
    const NAN: u8;
    /// The number whose addition moves the bits of a small magnitude into its last bits: its
    /// neighbours are as far apart as the smallest magnitudes.
    const MAGIC: f32;
}

struct E4m3;

impl Format for E4m3 {
    const MANTISSA: u32 = 3;
    const BIAS: u32 = 7;
    const EXPONENT_MAX: i32 = 8;
    const INFINITY: u8 = 0x7f;
    const NAN: u8 = 0x7f;
    const MAGIC: f32 = 16384.0;
}

struct E5m2;

impl Format for E5m2 {
    const MANTISSA: u32 = 2;
    const BIAS: u32 = 15;
    const EXPONENT_MAX: i32 = 15;
    const INFINITY: u8 = 0x7c;
    const NAN: u8 = 0x7e;
    const MAGIC: f32 = 128.0;
}

/// The `f32` exponent bits of the smallest number that is not subnormal.
const fn smallest_normal<F: Format>() -> u32 {
    (127 + 1 - F::BIAS) << 23
}

/// The power of two to divide a block by in which this is the largest finite magnitude, and its
/// reciprocal.
#[inline(always)]
fn scale<F: Format>(largest: f32) -> (f32, f32) {
    if largest == 0.0 {
        return (1.0, 1.0);
    }
    let bits = largest.to_bits();
    let above = i32::from(bits & 0x7f_ffff > 0x60_0000);
    let exponent = (bits >> 23) as i32 - 127 + above - F::EXPONENT_MAX;
    // Both powers are normal numbers.
    let exponent = exponent.max(-126) as u32;
    let power = |exponent: u32| f32::from_bits(exponent.wrapping_add(127) << 23);
    (power(exponent), power(exponent.wrapping_neg()))
}

/// The nearest byte to a number that does not overflow, ties to even.
#[inline(always)]
fn to_byte<F: Format>(value: f32) -> u8 {
    let shift = 23 - F::MANTISSA;
    let bits = value.to_bits();
    let magnitude = bits & !SIGN;
    // As for 16-bit floats: the addition rounds.
    let subnormal = (f32::from_bits(magnitude) + F::MAGIC)
        .to_bits()
        .wrapping_sub(F::MAGIC.to_bits());
    let odd = (magnitude >> shift) & 1;
    let rounded = magnitude.wrapping_add((1 << (shift - 1)) - 1 + odd);
    let normal = rounded.wrapping_sub((127 - F::BIAS) << 23) >> shift;
    let small = magnitude < smallest_normal::<F>();
    let finite = if small { subnormal } else { normal };
    let number = if magnitude < F32_INFINITY {
        finite
    } else {
        u32::from(F::INFINITY)
    };
    let signed = (number | (bits & SIGN) >> 24) as u8;
    let is_nan = magnitude > F32_INFINITY || (magnitude == F32_INFINITY && F::INFINITY == F::NAN);
    if is_nan { F::NAN } else { signed }
}

/// The number of a byte.
#[inline(always)]
fn from_byte<F: Format>(byte: u8) -> f32 {
    let byte = u32::from(byte);
    let shift = 23 - F::MANTISSA;
    let (magnitude, sign) = (byte & 0x7f, (byte & 0x80) << 24);
    let shifted = magnitude << shift;
    let first = smallest_normal::<F>();
    let subnormal = f32::from_bits(shifted + first) - f32::from_bits(first);
    let normal = shifted + ((127 - F::BIAS) << 23);
    let bits = if magnitude >> F::MANTISSA == 0 {
        subnormal.to_bits()
    } else {
        normal
    };
    let is_infinite = magnitude == u32::from(F::INFINITY);
    let bits = if is_infinite { F32_INFINITY } else { bits };
    let is_nan = magnitude > u32::from(F::INFINITY) || (is_infinite && F::INFINITY == F::NAN);
    if is_nan {
        f32::NAN
    } else {
        f32::from_bits(bits | sign)
    }
}

/// Blocks and the `f32` that they stand for: one is the source of the other.
struct Conversion {
    dst: *mut u8,
    src: *const u8,
    elements: usize,
}

/// Blocks to be made of `f32`.
struct Encode<F>(Conversion, PhantomData<F>);

impl<F: Format> KernelJob for Encode<F> {
    #[inline(always)]
    unsafe fn run<I: Isa>(self) {
        let Conversion { dst, src, elements } = self.0;
        for first in (0..elements).step_by(SCALED_BLOCK) {
            let length = SCALED_BLOCK.min(elements - first);
            let mut block = [0.0_f32; SCALED_BLOCK];
            let src = src.wrapping_add(first * size_of::<f32>());
            // SAFETY: the caller's promise; at least `length` elements are left.
            unsafe {
                let block = block.as_mut_ptr().cast::<u8>();
                block.copy_from_nonoverlapping(src, length * size_of::<f32>());
            }
            let finite = |x: &f32| if x.is_finite() { x.abs() } else { 0.0 };
            let largest = block.iter().map(finite).fold(0.0, f32::max);
            let (scale, reciprocal) = scale::<F>(largest);
            let mut bytes = [0_u8; SCALED_BLOCK];
            for (byte, x) in bytes.iter_mut().zip(block) {
                *byte = to_byte::<F>(x * reciprocal);
            }
            let dst = dst.wrapping_add(Float8::bytes(first));
            // SAFETY: the caller's promise; at least `length` elements are left.
            unsafe { dst.cast::<f32>().write_unaligned(scale) };
            let dst = dst.wrapping_add(size_of::<f32>());
            // SAFETY: the caller's promise; at least `length` elements are left.
            unsafe { dst.copy_from_nonoverlapping(bytes.as_ptr(), length) };
        }
    }
}

/// Blocks to be made `f32`.
struct Decode<F>(Conversion, PhantomData<F>);

impl<F: Format> KernelJob for Decode<F> {
    #[inline(always)]
    unsafe fn run<I: Isa>(self) {
        let Conversion { dst, src, elements } = self.0;
        for first in (0..elements).step_by(SCALED_BLOCK) {
            let length = SCALED_BLOCK.min(elements - first);
            let src = src.wrapping_add(Float8::bytes(first));
            // SAFETY: the caller's promise; at least `length` elements are left.
            let scale = unsafe { src.cast::<f32>().read_unaligned() };
            let mut bytes = [0_u8; SCALED_BLOCK];
            let src = src.wrapping_add(size_of::<f32>());
            // SAFETY: the caller's promise; at least `length` elements are left.
            unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(src, length) };
            let mut block = [0.0_f32; SCALED_BLOCK];
            for (x, byte) in block.iter_mut().zip(bytes) {
                *x = from_byte::<F>(byte) * scale;
            }
            let dst = dst.wrapping_add(first * size_of::<f32>());
            // SAFETY: the caller's promise; at least `length` elements are left.
            unsafe {
                let block = block.as_ptr().cast::<u8>();
                dst.copy_from_nonoverlapping(block, length * size_of::<f32>());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exact: `powi` promises no precision, and Miri holds it to that.
    fn power_of_two(exponent: i32) -> f64 {
        f64::from_bits(((exponent + 1023) as u64) << 52)
    }

    /// The number that a byte stands for, by the definition of the type.
    fn defined<F: Format>(byte: u8) -> f64 {
        let (exponent, mantissa) = (
            i32::from((byte & 0x7f) >> F::MANTISSA),
            f64::from(byte & ((1 << F::MANTISSA) - 1)) / f64::from(1 << F::MANTISSA),
        );
        let magnitude = match (byte & 0x7f, exponent) {
            (nan, _) if nan > F::INFINITY || nan == F::NAN => return f64::NAN,
            (infinity, _) if infinity == F::INFINITY => f64::INFINITY,
            (_, 0) => mantissa * power_of_two(1 - F::BIAS as i32),
            _ => (1.0 + mantissa) * power_of_two(exponent - F::BIAS as i32),
        };
        if byte & 0x80 == 0 {
            magnitude
        } else {
            -magnitude
        }
    }

    fn check_every_byte<F: Format>() {
        let mut finite: Vec<f64> = Vec::new();
        for byte in 0..=u8::MAX {
            let (expected, found) = (defined::<F>(byte), from_byte::<F>(byte));
            assert!(
                f64::from(found) == expected || found.is_nan() && expected.is_nan(),
                "{byte:#x}: {found}, not {expected}"
            );
            match found.is_nan() {
                true => assert_eq!(to_byte::<F>(found), F::NAN),
                false => assert_eq!(to_byte::<F>(found), byte),
            }
            finite.extend(expected.is_finite().then_some(expected));
        }
        // Between two neighbours, and in the middle, where the even one is nearest.
        finite.sort_by(f64::total_cmp);
        for pair in finite.windows(2) {
            let middle = (pair[0] + pair[1]) / 2.0;
            let near = |share: f64| {
                from_byte::<F>(to_byte::<F>((pair[0] + (pair[1] - pair[0]) * share) as f32))
            };
            assert_eq!(f64::from(near(0.49)), pair[0]);
            assert_eq!(f64::from(near(0.51)), pair[1]);
            assert_eq!(to_byte::<F>(middle as f32) & 1, 0, "{middle}");
        }
    }

    #[test]
    fn every_byte_of_e4m3() {
        check_every_byte::<E4m3>();
    }

    #[test]
    fn every_byte_of_e5m2() {
        check_every_byte::<E5m2>();
    }

    #[test]
    fn scales_are_smallest_powers_without_overflow() {
        for (largest, expected) in [
            (448.0, 1.0),
            (448.1, 2.0),
            (224.0, 0.5),
            (1.0, 1.0 / 256.0),
            (f32::MAX, power_of_two(120) as f32),
            (f32::MIN_POSITIVE, power_of_two(-126) as f32),
            (1e-45, power_of_two(-126) as f32),
            (0.0, 1.0),
        ] {
            let (scale, reciprocal) = scale::<E4m3>(largest);
            assert_eq!((scale, scale * reciprocal), (expected, 1.0), "{largest}");
        }
    }
}
