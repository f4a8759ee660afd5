//! The one file of the runtime that touches message memory.
//!
//! [Note: Who may touch what] Addresses come from `Place`, which computes them from a verified schedule and from ranges that
//! were granted. A schedule's signals order all accesses of different ranks to the same bytes (the verifier has checked
//! it), and `Group::issue` obliges the caller to leave its buffers alone until the operation is over.

use weft_kernels::{Finish, ReduceOp};
use weft_schedule::Slice;
use weft_transport::{Iovec, Segment};

use crate::call::Op;
use crate::execute::element_type;
use crate::geometry::Side;
use crate::mailbox::{Source, Target};
use crate::operation::Running;
use crate::place::Place;
use crate::plan::Work;
use crate::{Call, Counts};

/// The pieces of memory that a put sends, one behind the other.
#[derive(Debug)]
pub(crate) struct Pieces(Vec<Iovec>);

impl Pieces {
    /// The pieces of a slice of this rank's own memory.
    pub(crate) fn of(place: &Place<'_>, src: &Slice) -> Self {
        let named = ranges(place, src, src).map(|(start, bytes)| {
            // SAFETY: see [Note: Who may touch what]; while the put is under way, the executor lets nothing write to its source.
            unsafe { Iovec::new(start, bytes) }
        });
        Pieces(named.collect())
    }

    pub(crate) fn as_slice(&self) -> &[Iovec] {
        &self.0
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().map(|piece| piece.len() as u64).sum()
    }

    /// Copies the pieces, one behind the other, to a place in the pool from where they can be sent.
    pub(crate) fn staged(&self, pool: &Segment, offset: u64) -> Self {
        let start = pool.base().as_ptr().wrapping_add(offset as usize);
        let mut at = start;
        for piece in &self.0 {
            // SAFETY: the place is this rank's staging memory, as long as what the peer has granted; see also `Pieces::of`.
            unsafe { weft_kernels::copy(&[at], piece.start(), piece.len()) };
            at = at.wrapping_add(piece.len());
        }
        // SAFETY: as in `Pieces::of`.
        Pieces(vec![unsafe { Iovec::new(start, self.bytes() as usize) }])
    }

    /// Whether any piece has bytes among these.
    pub(crate) fn overlap(&self, start: *const u8, bytes: usize) -> bool {
        let begins_before = |a: *const u8, b: *const u8, bytes| a < b.wrapping_add(bytes);
        self.0.iter().any(|piece| {
            begins_before(piece.start(), start, bytes)
                && begins_before(start, piece.start(), piece.len())
        })
    }
}

/// Where a slice lies: the runs of bytes, which are measured as those of a step from `src` are.
fn ranges<'a>(
    place: &'a Place<'_>,
    slice: &'a Slice,
    src: &Slice,
) -> impl Iterator<Item = (*mut u8, usize)> + use<'a> {
    let bytes = element_type(slice, place.dtype()).size();
    let runs = place.runs(src, slice).into_iter();
    let runs = runs.filter(|(_, elements)| *elements > 0);
    runs.map(move |(skip, elements)| (place.address(slice, skip), elements * bytes))
}

/// Whether a step writes where a put reads.
pub(crate) fn overwrites(place: &Place<'_>, work: &Work, source: &Pieces) -> bool {
    let (dsts, measured) = match work {
        Work::Copy { dsts, src } => (dsts, src),
        Work::Reduce { dsts, srcs, .. } => (dsts, measured(place, dsts, srcs)),
    };
    let hits = |dst| ranges(place, dst, measured).any(|(at, bytes)| source.overlap(at, bytes));
    dsts.iter().any(hits)
}

/// The slice of a reduction that tells the lengths: user memory, if any is; all agree on them.
fn measured<'a>(place: &Place<'_>, dsts: &'a [Slice], srcs: &'a [Slice]) -> &'a Slice {
    let mut slices = dsts.iter().chain(srcs);
    slices
        .find(|slice| place.is_user(slice))
        .unwrap_or(&dsts[0])
}

/// Copies a slice to others, converting where element types differ. Returns the bytes moved.
pub(crate) fn copy(place: &Place<'_>, dsts: &[Slice], src: &Slice) -> u64 {
    let from = element_type(src, place.dtype());
    let to = element_type(&dsts[0], place.dtype());
    let mut moved = 0;
    for (skip, elements) in place.runs(src, &dsts[0]) {
        let source = place.address(src, skip);
        let targets: Vec<*mut u8> = dsts.iter().map(|dst| place.address(dst, skip)).collect();
        // SAFETY: see [Note: Who may touch what].
        unsafe { weft_kernels::convert(from, to, &targets, source, elements) };
        moved += elements * (from.size() + dsts.len() * to.size());
    }
    moved as u64
}

/// Combines slices. Returns the bytes moved.
pub(crate) fn reduce(
    place: &Place<'_>,
    op: ReduceOp,
    finish: Finish,
    dsts: &[Slice],
    srcs: &[Slice],
) -> u64 {
    let dtype = place.dtype();
    let mut moved = 0;
    let measured = measured(place, dsts, srcs);
    for (skip, elements) in place.runs(measured, measured) {
        let sources: Vec<*const u8> = srcs
            .iter()
            .map(|src| place.address(src, skip).cast_const())
            .collect();
        let targets: Vec<*mut u8> = dsts.iter().map(|dst| place.address(dst, skip)).collect();
        // SAFETY: see [Note: Who may touch what].
        unsafe { weft_kernels::reduce(dtype, op, &targets, &sources, elements, finish) };
        moved += elements * dtype.size() * (srcs.len() + dsts.len());
    }
    moved as u64
}

/// Brings a tile of the caller's vector into `Output`, for the collectives that work there.
pub(crate) fn prepare(call: &Call, rank: u32, running: &Running, tile: u64) {
    let factor = match call.op {
        Op::PremulSum(factor) if call.reduces() => Some(factor),
        _ => None,
    };
    let output = running.bases.output;
    if !call.brings_in(rank) || (factor.is_none() && std::ptr::eq(running.bases.input, output)) {
        return;
    }
    let geometry = &running.geometry;
    let size = geometry.element_bytes() as usize;
    for chunk in 0..geometry.chunks() {
        let range = geometry.chunk(Side::Output, chunk, tile);
        let (start, elements) = (
            range.start as usize * size,
            (range.end - range.start) as usize,
        );
        let (dst, src) = (
            output.wrapping_add(start),
            running.bases.input.wrapping_add(start),
        );
        match factor {
            // SAFETY: see [Note: Who may touch what].
            Some(factor) => unsafe { weft_kernels::scale(call.dtype, dst, src, elements, factor) },
            // SAFETY: as above.
            None => unsafe { weft_kernels::copy(&[dst], src, elements * size) },
        }
    }
}

/// A copy of a call's input, multiplied.
pub(crate) fn scaled(call: &Call, ranks: u32, factor: f64) -> Vec<u8> {
    let elements = call.message_elements(ranks) as usize;
    let mut copy = vec![0; elements * call.dtype.size()];
    // SAFETY: `Group::issue` obliges the caller to give an input of this size; the copy has it too.
    unsafe { weft_kernels::scale(call.dtype, copy.as_mut_ptr(), call.input, elements, factor) };
    copy
}

/// Brings the caller's vector into `Output`, for inline operations that work there.
pub(crate) fn bring_in(call: &Call, rank: u32) {
    let Counts::Equal(elements) = call.counts else {
        unreachable!("inline operations have equal counts");
    };
    if call.brings_in(rank) && !std::ptr::eq(call.input, call.output) {
        copy_inline(
            &[call.output],
            call.input,
            elements as usize * call.dtype.size(),
        );
    }
}

/// Copies what an action of an inline operation copies.
pub(crate) fn copy_inline(dsts: &[*mut u8], src: *const u8, bytes: usize) {
    // SAFETY: see [Note: Who may touch what]; what lies in slots fits into them, and the operation with this slot before has ended.
    unsafe { weft_kernels::copy(dsts, src, bytes) };
}

/// Combines what an action of an inline operation combines.
pub(crate) fn reduce_inline(
    call: &Call,
    finish: Finish,
    dsts: &[*mut u8],
    srcs: &[*const u8],
    elements: usize,
) {
    // SAFETY: as in `copy_inline`.
    unsafe { weft_kernels::reduce(call.dtype, call.op.kernel(), dsts, srcs, elements, finish) };
}

/// Copies a fragment from the pool to where a long message is received.
pub(crate) fn take_fragment(pool: &Segment, offset: u64, target: &Target, done: u64, bytes: u64) {
    let src = pool.base().as_ptr().wrapping_add(offset as usize);
    let dst = target.memory.wrapping_add(done as usize);
    // SAFETY: the fragment lies in this rank's channel and was signalled; the target has room for the whole message.
    unsafe { weft_kernels::copy(&[dst], src, bytes as usize) };
}

/// A fragment of a long message that is sent.
pub(crate) fn fragment(source: &Source, done: u64, bytes: u64) -> Pieces {
    let start = source.memory.wrapping_add(done as usize);
    // SAFETY: `Group::send` obliges the caller to keep the memory alive and unchanged until the message is sent.
    Pieces(vec![unsafe { Iovec::new(start, bytes as usize) }])
}

/// All of a message that is sent to its end before `Group::send` returns.
pub(crate) fn whole<'a>(memory: *const u8, bytes: u64) -> &'a [u8] {
    // SAFETY: `Group::send` obliges the caller to keep the memory alive and unchanged until the message is sent.
    unsafe { std::slice::from_raw_parts(memory, bytes as usize) }
}

/// Copies a short message to where it is received. The lengths are equal.
pub(crate) fn fill(target: &Target, bytes: &[u8]) {
    // SAFETY: `Group::receive` obliges the caller to give memory for the whole message.
    unsafe { weft_kernels::copy(&[target.memory], bytes.as_ptr(), bytes.len()) };
}
