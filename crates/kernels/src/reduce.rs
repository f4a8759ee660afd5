//! N-way reduction.

use std::marker::PhantomData;
use std::sync::atomic::{Ordering, compiler_fence};

use crate::block::block_elements;
use crate::combine::{And, Combine, Max, Min, Or, Product, Sum, Xor};
use crate::element::{Bf16, Bool, Element, F16, Number};
use crate::isa::Isa;
use crate::sweep::{BlockKernel, Sweep};
use crate::{DType, Finish, IsaLevel, ReduceOp, copy, supports};

/// Combines the sources in the order given and writes the result to every destination, in one pass.
///
/// With one source and [`Finish::Keep`] it copies.
///
/// # Panics
/// If there is no source, if not [`supports`]`(dtype, op)`, or if an average is asked for of
/// something else than a sum of numbers.
///
/// # Safety
/// Every source can be read and every destination written for `elements` elements of `dtype`. A
/// destination is one of the sources exactly or overlaps none; destinations do not overlap each
/// other. No other thread writes to any of this memory, or reads the destinations, meanwhile.
pub unsafe fn reduce(
    dtype: DType,
    op: ReduceOp,
    dsts: &[*mut u8],
    srcs: &[*const u8],
    elements: usize,
    finish: Finish,
) {
    // SAFETY: the caller's promise; the best level is an available one.
    unsafe { IsaLevel::best().reduce(dtype, op, dsts, srcs, elements, finish) }
}

impl IsaLevel {
    /// [`reduce`](crate::reduce()) at this level.
    ///
    /// # Panics
    /// As there.
    ///
    /// # Safety
    /// As there, and this level is among [`IsaLevel::available`].
    pub unsafe fn reduce(
        self,
        dtype: DType,
        op: ReduceOp,
        dsts: &[*mut u8],
        srcs: &[*const u8],
        elements: usize,
        finish: Finish,
    ) {
        check(dtype, op, srcs, finish);
        if let ([src], Finish::Keep) = (srcs, finish) {
            // SAFETY: the caller's promise.
            return unsafe { copy(dsts, *src, elements * dtype.size()) };
        }
        let call = ReduceCall {
            level: self,
            dsts,
            srcs,
            elements,
            finish,
        };
        // SAFETY: the caller's promise.
        unsafe { call.dispatch(dtype, op) }
    }
}

fn check(dtype: DType, op: ReduceOp, srcs: &[*const u8], finish: Finish) {
    assert!(!srcs.is_empty(), "a reduction needs at least one source");
    assert!(supports(dtype, op), "{op} is not for {dtype}");
    if let Finish::Average(contributions) = finish {
        assert!(
            op == ReduceOp::Sum && dtype != DType::Bool,
            "no average of a {op} of {dtype}"
        );
        assert!(
            contributions > 0,
            "an average needs at least one contribution"
        );
    }
}

/// A reduction whose types are not yet known to the compiler.
struct ReduceCall<'a> {
    level: IsaLevel,
    dsts: &'a [*mut u8],
    srcs: &'a [*const u8],
    elements: usize,
    finish: Finish,
}

impl ReduceCall<'_> {
    /// # Safety
    /// That of [`IsaLevel::reduce`].
    unsafe fn dispatch(self, dtype: DType, op: ReduceOp) {
        if matches!(op, ReduceOp::BitAnd | ReduceOp::BitOr | ReduceOp::BitXor)
            && dtype != DType::Bool
        {
            // SAFETY: the caller's promise; the same bytes.
            return unsafe { self.bits(dtype.size(), op) };
        }
        match dtype {
            // SAFETY: the caller's promise.
            DType::F64 => unsafe { self.numbers::<f64, { block_elements(8) }>(op) },
            // SAFETY: the caller's promise.
            DType::F32 => unsafe { self.numbers::<f32, { block_elements(4) }>(op) },
            // SAFETY: the caller's promise.
            DType::F16 => unsafe { self.numbers::<F16, { block_elements(4) }>(op) },
            // SAFETY: the caller's promise.
            DType::Bf16 => unsafe { self.numbers::<Bf16, { block_elements(2) }>(op) },
            // SAFETY: the caller's promise.
            DType::I64 => unsafe { self.numbers::<i64, { block_elements(8) }>(op) },
            // SAFETY: the caller's promise.
            DType::I32 => unsafe { self.numbers::<i32, { block_elements(4) }>(op) },
            // SAFETY: the caller's promise.
            DType::I16 => unsafe { self.numbers::<i16, { block_elements(2) }>(op) },
            // SAFETY: the caller's promise.
            DType::I8 => unsafe { self.numbers::<i8, { block_elements(1) }>(op) },
            // SAFETY: the caller's promise.
            DType::U64 => unsafe { self.numbers::<u64, { block_elements(8) }>(op) },
            // SAFETY: the caller's promise.
            DType::U32 => unsafe { self.numbers::<u32, { block_elements(4) }>(op) },
            // SAFETY: the caller's promise.
            DType::U16 => unsafe { self.numbers::<u16, { block_elements(2) }>(op) },
            // SAFETY: the caller's promise.
            DType::U8 => unsafe { self.numbers::<u8, { block_elements(1) }>(op) },
            // SAFETY: the caller's promise.
            DType::Bool => unsafe { self.booleans(op) },
        }
    }

    /// # Safety
    /// That of [`IsaLevel::reduce`].
    unsafe fn numbers<E: Number, const W: usize>(self, op: ReduceOp)
    where
        Sum: Combine<E::Wide>,
        Product: Combine<E::Wide>,
        Min: Combine<E::Wide>,
        Max: Combine<E::Wide>,
    {
        match op {
            // SAFETY: the caller's promise.
            ReduceOp::Sum => unsafe { self.sum::<E, W>() },
            // SAFETY: the caller's promise.
            ReduceOp::Product => unsafe { self.run::<E, Product, W>(Unchanged) },
            // SAFETY: the caller's promise.
            ReduceOp::Min => unsafe { self.run::<E, Min, W>(Unchanged) },
            // SAFETY: the caller's promise.
            ReduceOp::Max => unsafe { self.run::<E, Max, W>(Unchanged) },
            ReduceOp::BitAnd | ReduceOp::BitOr | ReduceOp::BitXor => {
                unreachable!("handled as bytes")
            }
        }
    }

    /// Bitwise operations are the same on elements of any size.
    ///
    /// # Safety
    /// That of [`IsaLevel::reduce`].
    unsafe fn bits(mut self, size: usize, op: ReduceOp) {
        self.elements *= size;
        match op {
            // SAFETY: the caller's promise.
            ReduceOp::BitAnd => unsafe { self.run::<u8, And, { block_elements(1) }>(Unchanged) },
            // SAFETY: the caller's promise.
            ReduceOp::BitOr => unsafe { self.run::<u8, Or, { block_elements(1) }>(Unchanged) },
            // SAFETY: the caller's promise.
            _ => unsafe { self.run::<u8, Xor, { block_elements(1) }>(Unchanged) },
        }
    }

    /// # Safety
    /// That of [`IsaLevel::reduce`].
    unsafe fn booleans(self, op: ReduceOp) {
        match op {
            ReduceOp::Product | ReduceOp::Min | ReduceOp::BitAnd => {
                // SAFETY: the caller's promise.
                unsafe { self.run::<Bool, And, { block_elements(1) }>(Unchanged) }
            }
            ReduceOp::Sum | ReduceOp::Max | ReduceOp::BitOr => {
                // SAFETY: the caller's promise.
                unsafe { self.run::<Bool, Or, { block_elements(1) }>(Unchanged) }
            }
            // SAFETY: the caller's promise.
            ReduceOp::BitXor => unsafe { self.run::<Bool, Xor, { block_elements(1) }>(Unchanged) },
        }
    }

    /// # Safety
    /// That of [`IsaLevel::reduce`].
    unsafe fn sum<E: Number, const W: usize>(self)
    where
        Sum: Combine<E::Wide>,
    {
        match self.finish {
            // SAFETY: the caller's promise.
            Finish::Keep => unsafe { self.run::<E, Sum, W>(Unchanged) },
            // SAFETY: the caller's promise.
            Finish::Average(contributions) => unsafe {
                self.run::<E, Sum, W>(Average::<E>(E::divisor(contributions)))
            },
        }
    }

    /// # Safety
    /// That of [`IsaLevel::reduce`].
    unsafe fn run<E: Element, O: Combine<E::Wide>, const W: usize>(self, end: impl Postprocess<E>) {
        let kernel = Reduction {
            end,
            types: PhantomData::<(E, O)>,
        };
        let sweep = Sweep::<_, W> {
            dsts: self.dsts,
            srcs: self.srcs,
            elements: self.elements,
            kernel,
        };
        // SAFETY: the caller's promise.
        unsafe { self.level.run(sweep) }
    }
}

/// The last step on combined elements.
trait Postprocess<E: Element> {
    fn apply<const W: usize>(&self, block: &mut [E::Wide; W]);
}

/// Nothing.
struct Unchanged;

impl<E: Element> Postprocess<E> for Unchanged {
    #[inline(always)]
    fn apply<const W: usize>(&self, _: &mut [E::Wide; W]) {}
}

/// An average.
struct Average<E: Number>(E::Divisor);

impl<E: Number> Postprocess<E> for Average<E> {
    #[inline(always)]
    fn apply<const W: usize>(&self, block: &mut [E::Wide; W]) {
        for x in block {
            *x = E::average(*x, self.0);
        }
    }
}

/// Combines elements `E` by `O`.
struct Reduction<E, O, F> {
    end: F,
    types: PhantomData<(E, O)>,
}

impl<E: Element, O: Combine<E::Wide>, F: Postprocess<E>, const W: usize> BlockKernel<W>
    for Reduction<E, O, F>
{
    const READ: usize = E::SIZE;
    const WRITE: usize = E::SIZE;

    #[inline(always)]
    unsafe fn block<I: Isa>(
        &self,
        mut srcs: impl Iterator<Item = *const u8> + Clone,
        dsts: &[*mut u8],
        offset: usize,
    ) {
        let Some(first) = srcs.next() else { return };
        let mut sum = [E::Wide::default(); W];
        // SAFETY: the caller's promise.
        unsafe { E::load::<I, W>(first, &mut sum) };
        for src in srcs {
            // No instruction: it keeps the compiler from vectorising this loop, of few turns, in
            // place of those within.
            compiler_fence(Ordering::Acquire);
            let mut next = [E::Wide::default(); W];
            // SAFETY: the caller's promise.
            unsafe { E::load::<I, W>(src, &mut next) };
            for (a, b) in sum.iter_mut().zip(next) {
                *a = O::combine(*a, b);
            }
        }
        self.end.apply(&mut sum);
        // SAFETY: the caller's promise.
        unsafe { E::store::<I, W>(&sum, dsts, offset) };
    }
}
