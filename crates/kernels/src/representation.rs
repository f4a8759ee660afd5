//! Representations of elements in memory, conversion between them, and reduction over several.

use std::mem::MaybeUninit;

use crate::float8::{Float8, SCALED_BLOCK};
use crate::{DType, Finish, IsaLevel, ReduceOp, copy};

/// How elements are represented in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Representation {
    /// As a type of elements.
    Plain(DType),
    /// As binary16, on the way to an average of this many contributions: numbers beyond the range
    /// have patterns of their own, up to the sum of this many of the largest.
    AveragedF16(u32),
    /// As 8-bit floats in blocks of [`SCALED_BLOCK`], the first of which begins with the first
    /// element.
    Scaled(Float8),
}

impl Representation {
    /// The bytes of this many elements.
    pub fn bytes(self, elements: usize) -> usize {
        match self {
            Representation::Plain(dtype) => elements * dtype.size(),
            Representation::AveragedF16(_) => elements * DType::F16.size(),
            Representation::Scaled(_) => Float8::bytes(elements),
        }
    }
}

/// Elements in memory.
#[derive(Clone, Copy, Debug)]
pub struct Represented<P> {
    /// Where they begin.
    pub address: P,
    /// How they are represented.
    pub representation: Representation,
}

/// The elements that are converted at once: so few that they stay in the nearest cache.
pub(crate) const STRIP: usize = 4 * SCALED_BLOCK;
/// The strips that are combined at once.
const STRIPS: usize = 8;

/// Room for the elements of a strip, of any type.
type Strip = [u8; STRIP * 8];

impl IsaLevel {
    /// Converts elements, rounding once, to nearest even. 8-bit floats and those on the way to an
    /// average come from and become `f32`.
    ///
    /// # Panics
    /// As [`convert`](crate::convert()).
    ///
    /// # Safety
    /// `src` can be read and `dst` written for the bytes of `elements` elements, and they do not
    /// overlap. No other thread writes to any of this memory, or reads the destinations, meanwhile.
    /// This level is among [`IsaLevel::available`].
    pub unsafe fn represent(
        self,
        dst: Represented<*mut u8>,
        src: Represented<*const u8>,
        elements: usize,
    ) {
        use Representation::{AveragedF16, Plain, Scaled};
        let (to, from) = (dst.address, src.address);
        match (dst.representation, src.representation) {
            (a, b) if a == b => {
                // SAFETY: the caller's promise.
                unsafe { copy(&[to], from, a.bytes(elements)) }
            }
            (Plain(a), Plain(b)) => {
                // SAFETY: the caller's promise.
                unsafe { self.convert(b, a, &[to], from, elements) }
            }
            (AveragedF16(contributions), Plain(DType::F32)) => {
                // SAFETY: the caller's promise.
                unsafe { self.encode_averaged(to, from, elements, contributions) }
            }
            (Plain(DType::F32), AveragedF16(contributions)) => {
                // SAFETY: the caller's promise.
                unsafe { self.decode_averaged(to, from, elements, contributions) }
            }
            (Scaled(float), Plain(DType::F32)) => {
                // SAFETY: the caller's promise.
                unsafe { float.encode(self, to, from, elements) }
            }
            (Plain(DType::F32), Scaled(float)) => {
                // SAFETY: the caller's promise.
                unsafe { float.decode(self, to, from, elements) }
            }
            (a, b) => panic!("no conversion from {b:?} to {a:?}"),
        }
    }

    /// As [`IsaLevel::reduce`], where sources and destinations may be represented otherwise than as
    /// elements of `dtype`: they are combined as such, and rounded once per destination.
    ///
    /// # Panics
    /// As [`IsaLevel::reduce`] and [`IsaLevel::represent`].
    ///
    /// # Safety
    /// As [`IsaLevel::reduce`]; memory in another representation overlaps nothing else.
    pub unsafe fn reduce_represented(
        self,
        dtype: DType,
        op: ReduceOp,
        dsts: &[Represented<*mut u8>],
        srcs: &[Represented<*const u8>],
        elements: usize,
        finish: Finish,
    ) {
        let mut rooms = MaybeUninit::<[Strip; STRIPS + 1]>::uninit();
        for first in (0..elements).step_by(STRIP) {
            let strip = StripReduction {
                level: self,
                dtype,
                op,
                finish,
                first,
                length: STRIP.min(elements - first),
                rooms: rooms.as_mut_ptr().cast(),
            };
            // SAFETY: the caller's promise; the strip lies within `elements`.
            unsafe { strip.run(dsts, srcs) };
        }
    }
}

/// The reduction of a few elements.
struct StripReduction {
    level: IsaLevel,
    dtype: DType,
    op: ReduceOp,
    finish: Finish,
    first: usize,
    length: usize,
    /// For [`STRIPS`] converted sources and their combination.
    rooms: *mut Strip,
}

impl StripReduction {
    /// # Safety
    /// That of [`IsaLevel::reduce_represented`].
    unsafe fn run(&self, dsts: &[Represented<*mut u8>], srcs: &[Represented<*const u8>]) {
        let plain = Representation::Plain(self.dtype);
        let sum = self.room(STRIPS);
        let mut pointers = [std::ptr::null(); STRIPS];
        // Combined from left to right, in groups of which the first is the former result.
        let (mut left, mut begun) = (srcs, 0);
        loop {
            let (some, rest) = left.split_at(left.len().min(STRIPS - begun));
            for (place, src) in (begun..).zip(some) {
                pointers[place] = self
                    .at(src.address.cast_mut(), src.representation)
                    .cast_const();
                if src.representation != plain {
                    let room = self.room(place);
                    // SAFETY: the caller's promise, and there is room for a strip of any type.
                    unsafe { self.represent(room, plain, pointers[place], src.representation) };
                    pointers[place] = room;
                }
            }
            let group = &pointers[..begun + some.len()];
            if rest.is_empty() {
                // SAFETY: the caller's promise.
                return unsafe { self.write(dsts, group) };
            }
            // SAFETY: the caller's promise; the former result is combined in place.
            unsafe { self.combine(&[sum], group, Finish::Keep) };
            pointers[0] = sum;
            (left, begun) = (rest, 1);
        }
    }

    /// Combines the last sources, and rounds the result for each destination.
    ///
    /// # Safety
    /// That of [`IsaLevel::reduce_represented`].
    unsafe fn write(&self, dsts: &[Represented<*mut u8>], srcs: &[*const u8]) {
        let plain = Representation::Plain(self.dtype);
        if let [dst] = dsts
            && dst.representation == plain
        {
            // SAFETY: the caller's promise.
            return unsafe { self.combine(&[self.at(dst.address, plain)], srcs, self.finish) };
        }
        let sum = self.room(STRIPS);
        // SAFETY: the caller's promise.
        unsafe { self.combine(&[sum], srcs, self.finish) };
        for dst in dsts {
            let to = self.at(dst.address, dst.representation);
            // SAFETY: the caller's promise.
            unsafe { self.represent(to, dst.representation, sum, plain) };
        }
    }

    fn room(&self, index: usize) -> *mut u8 {
        self.rooms.wrapping_add(index).cast()
    }

    /// Where the strip begins in memory that begins here.
    fn at(&self, memory: *mut u8, representation: Representation) -> *mut u8 {
        memory.wrapping_add(representation.bytes(self.first))
    }

    /// # Safety
    /// That of [`IsaLevel::reduce`].
    unsafe fn combine(&self, dsts: &[*mut u8], srcs: &[*const u8], finish: Finish) {
        // SAFETY: the caller's promise.
        unsafe {
            self.level
                .reduce(self.dtype, self.op, dsts, srcs, self.length, finish)
        }
    }

    /// # Safety
    /// That of [`IsaLevel::represent`].
    unsafe fn represent(
        &self,
        dst: *mut u8,
        to: Representation,
        src: *const u8,
        from: Representation,
    ) {
        let dst = Represented {
            address: dst,
            representation: to,
        };
        let src = Represented {
            address: src,
            representation: from,
        };
        // SAFETY: the caller's promise.
        unsafe { self.level.represent(dst, src, self.length) }
    }
}
