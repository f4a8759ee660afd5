//! `f32` on the way to an average, as binary16.
//!
//! Numbers beyond the range of binary16 take the patterns of NaNs that no conversion writes, as
//! averages of 16-bit floats do: see [Note: Sums in transit]. So the source needs no parameters.
//! Magnitudes beyond the sum of `contributions` contributions become infinite.

use crate::average::Half;
use crate::element::F16;
use crate::representation::STRIP;
use crate::{DType, IsaLevel};

impl IsaLevel {
    /// # Safety
    /// `src` can be read for `elements` elements of `f32` and `dst` written for as many of 16 bits,
    /// and they do not overlap. This level is among [`IsaLevel::available`].
    pub(crate) unsafe fn encode_averaged(
        self,
        dst: *mut u8,
        src: *const u8,
        elements: usize,
        contributions: u32,
    ) {
        for (dst, src, length) in strips(dst, 2, src, 4, elements) {
            // SAFETY: the caller's promise.
            unsafe { self.convert(DType::F32, DType::F16, &[dst], src, length) };
            // SAFETY: the caller's promise.
            let at = |i: usize| unsafe { src.cast::<u32>().wrapping_add(i).read_unaligned() };
            // Of magnitudes, bits are in the order of the numbers.
            let largest = (0..length).fold(0, |most, i| most.max(at(i) & 0x7fff_ffff));
            if largest < F16::OVERFLOW {
                continue;
            }
            for i in 0..length {
                let x = f32::from_bits(at(i));
                if x.is_nan() || x.to_bits() & 0x7fff_ffff < F16::OVERFLOW {
                    continue;
                }
                let dst = dst.cast::<u16>().wrapping_add(i);
                // SAFETY: the caller's promise.
                unsafe { dst.write_unaligned(encode(x, contributions)) };
            }
        }
    }

    /// # Safety
    /// As [`IsaLevel::encode_averaged`], the other way round.
    pub(crate) unsafe fn decode_averaged(
        self,
        dst: *mut u8,
        src: *const u8,
        elements: usize,
        contributions: u32,
    ) {
        for (dst, src, length) in strips(dst, 4, src, 2, elements) {
            // SAFETY: the caller's promise.
            unsafe { self.convert(DType::F16, DType::F32, &[dst], src, length) };
            // SAFETY: the caller's promise.
            let at = |i: usize| unsafe { src.cast::<u16>().wrapping_add(i).read_unaligned() };
            let largest = (0..length).fold(0, |most, i| most.max(at(i) & 0x7fff));
            if largest <= F16::INFINITY {
                continue;
            }
            for i in 0..length {
                let dst = dst.cast::<f32>().wrapping_add(i);
                let x = F16::decode(at(i), contributions) as f32;
                if x.is_finite() {
                    // SAFETY: the caller's promise.
                    unsafe { dst.write_unaligned(x) };
                }
            }
        }
    }
}

/// The encoding of a number beyond the range.
fn encode(x: f32, contributions: u32) -> u16 {
    let reach = F16::END * f64::from(contributions);
    let bounded = if f64::from(x.abs()) > reach {
        x * f32::INFINITY
    } else {
        x
    };
    F16::encode(bounded.into(), contributions)
}

/// Destination, source and length of each strip of elements of these sizes.
fn strips(
    dst: *mut u8,
    dst_size: usize,
    src: *const u8,
    src_size: usize,
    elements: usize,
) -> impl Iterator<Item = (*mut u8, *const u8, usize)> {
    (0..elements).step_by(STRIP).map(move |first| {
        let length = STRIP.min(elements - first);
        (
            dst.wrapping_add(first * dst_size),
            src.wrapping_add(first * src_size),
            length,
        )
    })
}
