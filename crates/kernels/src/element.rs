//! Element types of the kernels: storage type and arithmetic type.

use crate::bf16_pairs;
use crate::block::{read, read_with, write_with};
use crate::isa::Isa;

/// A type of elements in memory.
pub(crate) trait Element {
    /// Bytes in memory.
    const SIZE: usize;

    /// The type in which elements are combined.
    type Wide: Copy + Default;

    /// Reads a block.
    ///
    /// # Safety
    /// `W` elements can be read at `src`, and the processor has the instructions of `I`.
    unsafe fn load<I: Isa, const W: usize>(src: *const u8, block: &mut [Self::Wide; W]);

    /// Rounds a block and writes it to every destination, at this byte offset.
    ///
    /// # Safety
    /// `W` elements can be written there, and the processor has the instructions of `I`.
    unsafe fn store<I: Isa, const W: usize>(
        block: &[Self::Wide; W],
        dsts: &[*mut u8],
        offset: usize,
    );

    /// A value times a factor.
    fn scale(value: Self::Wide, factor: f64) -> Self::Wide;
}

/// A type of elements whose sums have averages.
pub(crate) trait Number: Element {
    /// The factor or divisor of sums.
    type Divisor: Copy;

    /// The divisor of one of this many contributions.
    fn divisor(contributions: u32) -> Self::Divisor;

    /// The average for a sum.
    fn average(sum: Self::Wide, divisor: Self::Divisor) -> Self::Wide;
}

macro_rules! float_element {
    ($float:ty) => {
        impl Element for $float {
            const SIZE: usize = size_of::<$float>();
            type Wide = $float;

            #[inline(always)]
            unsafe fn load<I: Isa, const W: usize>(src: *const u8, block: &mut [$float; W]) {
                // SAFETY: the caller's promise.
                unsafe { read(src, block) }
            }

            #[inline(always)]
            unsafe fn store<I: Isa, const W: usize>(
                block: &[$float; W],
                dsts: &[*mut u8],
                offset: usize,
            ) {
                // SAFETY: the caller's promise.
                unsafe {
                    write_with(block, dsts, offset, |x| {
                        if x.is_nan() { <$float>::NAN } else { x }
                    })
                }
            }

            #[inline(always)]
            fn scale(value: $float, factor: f64) -> $float {
                value * factor as $float
            }
        }

        impl Number for $float {
            type Divisor = $float;

            #[inline(always)]
            fn divisor(contributions: u32) -> $float {
                (1.0 / f64::from(contributions)) as $float
            }

            #[inline(always)]
            fn average(sum: $float, divisor: $float) -> $float {
                sum * divisor
            }
        }
    };
}

float_element!(f64);
float_element!(f32);

// Divided as `f64`, where it is exact: a quotient of 32-bit integers that is no integer is further
// from the next one than its rounding error. That vectorises, as a division of integers does not.
macro_rules! integer_element {
    ($($integer:ty, divided as $quotient:ty;)*) => {$(
        impl Element for $integer {
            const SIZE: usize = size_of::<$integer>();
            type Wide = $integer;

            #[inline(always)]
            unsafe fn load<I: Isa, const W: usize>(src: *const u8, block: &mut [$integer; W]) {
                // SAFETY: the caller's promise.
                unsafe { read(src, block) }
            }

            #[inline(always)]
            unsafe fn store<I: Isa, const W: usize>(block: &[$integer; W], dsts: &[*mut u8], offset: usize) {
                // SAFETY: the caller's promise.
                unsafe { write_with(block, dsts, offset, |x| x) }
            }

            #[inline(always)]
            fn scale(value: $integer, factor: f64) -> $integer {
                (value as f64 * factor) as $integer
            }
        }

        impl Number for $integer {
            type Divisor = $quotient;

            #[inline(always)]
            fn divisor(contributions: u32) -> $quotient {
                contributions.into()
            }

            #[inline(always)]
            fn average(sum: $integer, divisor: $quotient) -> $integer {
                (<$quotient>::from(sum) / divisor) as $integer
            }
        }
    )*};
}

integer_element!(
    i64, divided as i64;
    i32, divided as f64;
    i16, divided as f64;
    i8, divided as f64;
    u64, divided as u64;
    u32, divided as f64;
    u16, divided as f64;
    u8, divided as f64;
);

/// A binary16 in memory.
pub(crate) struct F16;

/// A bfloat16 in memory. The elements of a block are not in order (see [`bf16_pairs`]).
pub(crate) struct Bf16;

macro_rules! half_number {
    ($half:ty) => {
        impl Number for $half {
            type Divisor = f32;

            #[inline(always)]
            fn divisor(contributions: u32) -> f32 {
                f32::divisor(contributions)
            }

            #[inline(always)]
            fn average(sum: f32, divisor: f32) -> f32 {
                f32::average(sum, divisor)
            }
        }
    };
}

half_number!(F16);
half_number!(Bf16);

impl Element for F16 {
    const SIZE: usize = 2;
    type Wide = f32;

    #[inline(always)]
    unsafe fn load<I: Isa, const W: usize>(src: *const u8, block: &mut [f32; W]) {
        // SAFETY: the caller's promise.
        unsafe { I::read_f16(src, block) }
    }

    #[inline(always)]
    unsafe fn store<I: Isa, const W: usize>(block: &[f32; W], dsts: &[*mut u8], offset: usize) {
        // SAFETY: the caller's promise.
        unsafe { I::write_f16(block, dsts, offset) }
    }

    #[inline(always)]
    fn scale(value: f32, factor: f64) -> f32 {
        f32::scale(value, factor)
    }
}

impl Element for Bf16 {
    const SIZE: usize = 2;
    type Wide = f32;

    #[inline(always)]
    unsafe fn load<I: Isa, const W: usize>(src: *const u8, block: &mut [f32; W]) {
        // SAFETY: the caller's promise.
        unsafe { bf16_pairs::read(src, block) }
    }

    #[inline(always)]
    unsafe fn store<I: Isa, const W: usize>(block: &[f32; W], dsts: &[*mut u8], offset: usize) {
        // SAFETY: the caller's promise.
        unsafe { bf16_pairs::write(block, dsts, offset) }
    }

    #[inline(always)]
    fn scale(value: f32, factor: f64) -> f32 {
        f32::scale(value, factor)
    }
}

/// A boolean in memory: combined as 0 or 1.
pub(crate) struct Bool;

impl Element for Bool {
    const SIZE: usize = 1;
    type Wide = u8;

    #[inline(always)]
    unsafe fn load<I: Isa, const W: usize>(src: *const u8, block: &mut [u8; W]) {
        // SAFETY: the caller's promise.
        unsafe { read_with(src, block, |x: u8| u8::from(x != 0)) }
    }

    #[inline(always)]
    unsafe fn store<I: Isa, const W: usize>(block: &[u8; W], dsts: &[*mut u8], offset: usize) {
        // SAFETY: the caller's promise.
        unsafe { write_with(block, dsts, offset, |x| x) }
    }

    #[inline(always)]
    fn scale(value: u8, factor: f64) -> u8 {
        u8::from(f64::from(value) * factor != 0.0)
    }
}
