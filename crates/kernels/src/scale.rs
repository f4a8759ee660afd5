//! Multiplication by a number.

use std::marker::PhantomData;

use crate::block::block_elements;
use crate::element::{Bf16, Bool, Element, F16};
use crate::isa::Isa;
use crate::sweep::{BlockKernel, Sweep};
use crate::{DType, IsaLevel};

/// Writes every element times `factor`.
///
/// Floats multiply by the factor rounded to `f64` for `f64`, to `f32` for the others. Integers are
/// multiplied as `f64`, cut towards zero, and limited to their range. A boolean stays, or becomes
/// false where `factor` is zero.
///
/// # Safety
/// `src` can be read and `dst` written for `elements` elements. They are the same or do not
/// overlap. No other thread writes to any of this memory, or reads the destinations, meanwhile.
pub unsafe fn scale(dtype: DType, dst: *mut u8, src: *const u8, elements: usize, factor: f64) {
    // SAFETY: the caller's promise; the best level is an available one.
    unsafe { IsaLevel::best().scale(dtype, dst, src, elements, factor) }
}

impl IsaLevel {
    /// [`scale`](crate::scale()) at this level.
    ///
    /// # Safety
    /// As there, and this level is among [`IsaLevel::available`].
    pub unsafe fn scale(
        self,
        dtype: DType,
        dst: *mut u8,
        src: *const u8,
        elements: usize,
        factor: f64,
    ) {
        let call = ScaleCall {
            level: self,
            dst,
            src,
            elements,
            factor,
        };
        match dtype {
            // SAFETY: the caller's promise.
            DType::F64 => unsafe { call.run::<f64, { block_elements(8) }>() },
            // SAFETY: the caller's promise.
            DType::F32 => unsafe { call.run::<f32, { block_elements(4) }>() },
            // SAFETY: the caller's promise.
            DType::F16 => unsafe { call.run::<F16, { block_elements(4) }>() },
            // SAFETY: the caller's promise.
            DType::Bf16 => unsafe { call.run::<Bf16, { block_elements(2) }>() },
            // SAFETY: the caller's promise.
            DType::I64 => unsafe { call.run::<i64, { block_elements(8) }>() },
            // SAFETY: the caller's promise.
            DType::I32 => unsafe { call.run::<i32, { block_elements(8) }>() },
            // SAFETY: the caller's promise.
            DType::I16 => unsafe { call.run::<i16, { block_elements(8) }>() },
            // SAFETY: the caller's promise.
            DType::I8 => unsafe { call.run::<i8, { block_elements(8) }>() },
            // SAFETY: the caller's promise.
            DType::U64 => unsafe { call.run::<u64, { block_elements(8) }>() },
            // SAFETY: the caller's promise.
            DType::U32 => unsafe { call.run::<u32, { block_elements(8) }>() },
            // SAFETY: the caller's promise.
            DType::U16 => unsafe { call.run::<u16, { block_elements(8) }>() },
            // SAFETY: the caller's promise.
            DType::U8 => unsafe { call.run::<u8, { block_elements(8) }>() },
            // SAFETY: the caller's promise.
            DType::Bool => unsafe { call.run::<Bool, { block_elements(8) }>() },
        }
    }
}

/// A scaling whose element type is not yet known to the compiler.
struct ScaleCall {
    level: IsaLevel,
    dst: *mut u8,
    src: *const u8,
    elements: usize,
    factor: f64,
}

impl ScaleCall {
    /// # Safety
    /// That of [`IsaLevel::scale`].
    unsafe fn run<E: Element, const W: usize>(self) {
        let kernel = Scaling::<E> {
            factor: self.factor,
            element: PhantomData,
        };
        let sweep = Sweep::<_, W> {
            dsts: &[self.dst],
            srcs: &[self.src],
            elements: self.elements,
            kernel,
        };
        // SAFETY: the caller's promise.
        unsafe { self.level.run(sweep) }
    }
}

/// Multiplies elements `E`.
struct Scaling<E> {
    factor: f64,
    element: PhantomData<E>,
}

impl<E: Element, const W: usize> BlockKernel<W> for Scaling<E> {
    const READ: usize = E::SIZE;
    const WRITE: usize = E::SIZE;

    #[inline(always)]
    unsafe fn block<I: Isa>(
        &self,
        srcs: impl Iterator<Item = *const u8> + Clone,
        dsts: &[*mut u8],
        offset: usize,
    ) {
        for src in srcs {
            let mut block = [E::Wide::default(); W];
            // SAFETY: the caller's promise.
            unsafe { E::load::<I, W>(src, &mut block) };
            for x in &mut block {
                *x = E::scale(*x, self.factor);
            }
            // SAFETY: the caller's promise.
            unsafe { E::store::<I, W>(&block, dsts, offset) };
        }
    }
}
