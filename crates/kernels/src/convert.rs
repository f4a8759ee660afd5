//! Conversion between floating-point types.

use std::marker::PhantomData;

use crate::block::{block_elements, read_with, write_with};
use crate::element::{Element, F16};
use crate::half_float::{bf16_to_f32, f32_to_bf16, f64_to_f32_odd};
use crate::isa::Isa;
use crate::sweep::{BlockKernel, Sweep};
use crate::{DType, IsaLevel, copy};

/// Converts elements between floating-point types, rounding once, to nearest even, and writes them
/// to every destination. Between equal types of any kind it copies.
///
/// # Panics
/// If the types differ and are not both floating-point types.
///
/// # Safety
/// `src` can be read for `elements` elements of `from`, and every one of `dsts` written for as many
/// of `to`. A destination does not overlap `src`, or begins where it does and has no larger
/// elements; destinations do not overlap each other, and where one begins at `src` there is no
/// other. No other thread writes to any of this memory, or reads the destinations, meanwhile.
pub unsafe fn convert(from: DType, to: DType, dsts: &[*mut u8], src: *const u8, elements: usize) {
    // SAFETY: the caller's promise; the best level is an available one.
    unsafe { IsaLevel::best().convert(from, to, dsts, src, elements) }
}

impl IsaLevel {
    /// [`convert`](crate::convert()) at this level.
    ///
    /// # Panics
    /// As there.
    ///
    /// # Safety
    /// As there, and this level is among [`IsaLevel::available`].
    pub unsafe fn convert(
        self,
        from: DType,
        to: DType,
        dsts: &[*mut u8],
        src: *const u8,
        elements: usize,
    ) {
        if from == to {
            // SAFETY: the caller's promise.
            return unsafe { copy(dsts, src, elements * from.size()) };
        }
        assert!(
            from.is_float() && to.is_float(),
            "no conversion from {from} to {to}"
        );
        let call = ConvertCall {
            level: self,
            dsts,
            src,
            elements,
        };
        match from {
            // SAFETY: the caller's promise.
            DType::F32 => unsafe { call.to::<f32>(to) },
            // SAFETY: the caller's promise.
            DType::F16 => unsafe { call.to::<F16>(to) },
            // SAFETY: the caller's promise.
            DType::Bf16 => unsafe { call.to::<Bf16InOrder>(to) },
            // SAFETY: the caller's promise.
            _ if to == DType::F32 => unsafe { call.run::<NearestF32, f32>() },
            // SAFETY: the caller's promise.
            _ => unsafe { call.to::<OddF32>(to) },
        }
    }
}

/// A conversion whose types are not yet known to the compiler.
struct ConvertCall<'a> {
    level: IsaLevel,
    dsts: &'a [*mut u8],
    src: *const u8,
    elements: usize,
}

impl ConvertCall<'_> {
    /// # Safety
    /// That of [`IsaLevel::convert`].
    unsafe fn to<S: ConvertSource>(self, to: DType) {
        match to {
            // SAFETY: the caller's promise.
            DType::F64 => unsafe { self.run::<S, WideF64>() },
            // SAFETY: the caller's promise.
            DType::F16 => unsafe { self.run::<S, F16>() },
            // SAFETY: the caller's promise.
            DType::Bf16 => unsafe { self.run::<S, Bf16InOrder>() },
            // SAFETY: the caller's promise.
            _ => unsafe { self.run::<S, f32>() },
        }
    }

    /// # Safety
    /// That of [`IsaLevel::convert`].
    unsafe fn run<S: ConvertSource, T: ConvertTarget>(self) {
        let kernel = Conversion::<S, T> { types: PhantomData };
        let sweep = Sweep::<_, { block_elements(8) }> {
            dsts: self.dsts,
            srcs: &[self.src],
            elements: self.elements,
            kernel,
        };
        // SAFETY: the caller's promise.
        unsafe { self.level.run(sweep) }
    }
}

/// A type that can be read as `f32`, exactly or so that the target is still rounded correctly.
trait ConvertSource {
    /// Bytes in memory.
    const SIZE: usize;

    /// # Safety
    /// That of [`Element::load`].
    unsafe fn load<I: Isa, const W: usize>(src: *const u8, block: &mut [f32; W]);
}

/// A type that can be written from `f32`.
trait ConvertTarget {
    /// Bytes in memory.
    const SIZE: usize;

    /// # Safety
    /// That of [`Element::store`].
    unsafe fn store<I: Isa, const W: usize>(block: &[f32; W], dsts: &[*mut u8], offset: usize);
}

macro_rules! source_and_target {
    ($($element:ty),*) => {$(
        impl ConvertSource for $element {
            const SIZE: usize = <$element as Element>::SIZE;

            #[inline(always)]
            unsafe fn load<I: Isa, const W: usize>(src: *const u8, block: &mut [f32; W]) {
                // SAFETY: the caller's promise.
                unsafe { <$element as Element>::load::<I, W>(src, block) }
            }
        }

        impl ConvertTarget for $element {
            const SIZE: usize = <$element as Element>::SIZE;

            #[inline(always)]
            unsafe fn store<I: Isa, const W: usize>(block: &[f32; W], dsts: &[*mut u8], offset: usize) {
                // SAFETY: the caller's promise.
                unsafe { <$element as Element>::store::<I, W>(block, dsts, offset) }
            }
        }
    )*};
}

source_and_target!(f32, F16);

/// A bfloat16 in memory, in a block in order.
struct Bf16InOrder;

impl ConvertSource for Bf16InOrder {
    const SIZE: usize = 2;

    #[inline(always)]
    unsafe fn load<I: Isa, const W: usize>(src: *const u8, block: &mut [f32; W]) {
        // SAFETY: the caller's promise.
        unsafe { read_with(src, block, bf16_to_f32) }
    }
}

impl ConvertTarget for Bf16InOrder {
    const SIZE: usize = 2;

    #[inline(always)]
    unsafe fn store<I: Isa, const W: usize>(block: &[f32; W], dsts: &[*mut u8], offset: usize) {
        // SAFETY: the caller's promise.
        unsafe { write_with(block, dsts, offset, f32_to_bf16) }
    }
}

/// An `f64` in memory that becomes the nearest `f32`.
struct NearestF32;

impl ConvertSource for NearestF32 {
    const SIZE: usize = 8;

    #[inline(always)]
    unsafe fn load<I: Isa, const W: usize>(src: *const u8, block: &mut [f32; W]) {
        // SAFETY: the caller's promise.
        unsafe { read_with(src, block, |x: f64| x as f32) }
    }
}

/// An `f64` in memory that becomes a 16-bit float.
struct OddF32;

impl ConvertSource for OddF32 {
    const SIZE: usize = 8;

    #[inline(always)]
    unsafe fn load<I: Isa, const W: usize>(src: *const u8, block: &mut [f32; W]) {
        // SAFETY: the caller's promise.
        unsafe { read_with(src, block, f64_to_f32_odd) }
    }
}

/// An `f64` in memory that a smaller float becomes.
struct WideF64;

impl ConvertTarget for WideF64 {
    const SIZE: usize = 8;

    #[inline(always)]
    unsafe fn store<I: Isa, const W: usize>(block: &[f32; W], dsts: &[*mut u8], offset: usize) {
        let canonical = |x: f32| if x.is_nan() { f64::NAN } else { x.into() };
        // SAFETY: the caller's promise.
        unsafe { write_with(block, dsts, offset, canonical) }
    }
}

/// Turns elements `S` into elements `T`.
struct Conversion<S, T> {
    types: PhantomData<(S, T)>,
}

impl<S: ConvertSource, T: ConvertTarget, const W: usize> BlockKernel<W> for Conversion<S, T> {
    const READ: usize = S::SIZE;
    const WRITE: usize = T::SIZE;

    #[inline(always)]
    unsafe fn block<I: Isa>(
        &self,
        srcs: impl Iterator<Item = *const u8> + Clone,
        dsts: &[*mut u8],
        offset: usize,
    ) {
        for src in srcs {
            let mut block = [0.0; W];
            // SAFETY: the caller's promise.
            unsafe { S::load::<I, W>(src, &mut block) };
            // SAFETY: the caller's promise.
            unsafe { T::store::<I, W>(&block, dsts, offset) };
        }
    }
}
