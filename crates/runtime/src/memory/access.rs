//! The one file of the runtime that touches message memory.
//!
//! [Note: Who may touch what] Addresses come from a program's operands, computed from a verified
//! schedule and from ranges that were granted. A schedule's signals order all accesses of different
//! ranks to the same bytes (the verifier has checked it), and `Group::issue` obliges the caller to
//! leave its buffers alone until the operation is over.

use weft_kernels::{DType, Finish, IsaLevel, Representation, Represented};
use weft_transport::{Iovec, IovecMut, Segment};

use crate::call::Call;

/// All of a message that is sent before the call returns; an address of no bytes may be any.
pub(crate) fn bytes<'a>(address: *const u8, bytes: u64) -> &'a [u8] {
    if bytes == 0 {
        return &[];
    }
    // SAFETY: `Group::send` obliges its caller to keep a message alive and unchanged.
    unsafe { std::slice::from_raw_parts(address, bytes as usize) }
}

/// Memory of this rank that a put reads.
pub(crate) fn source(address: *const u8, bytes: u64) -> Iovec {
    // SAFETY: see [Note: Who may touch what]. While a put is under way, the executor lets nothing
    // write to its source, and `Group::send` obliges its caller to keep a message alive and
    // unchanged.
    unsafe { Iovec::new(address, bytes as usize) }
}

/// Memory of the caller's that adapters shall know.
pub(crate) fn registered(address: *const u8, bytes: u64) -> Iovec {
    // SAFETY: `Group::register` obliges its caller to keep it mapped; so does `Group::issue` until
    // the operation is over, whose strips are not registered any later. It is read by puts only, of
    // which each names it again.
    unsafe { Iovec::new(address, bytes as usize) }
}

/// Memory of the caller's that a link writes, until it is told to stop.
pub(crate) fn target(address: *mut u8, bytes: u64) -> IovecMut {
    // SAFETY: see [Note: Who may touch what], and [Note: Arrivals] of who else does. The executor
    // takes the redirection back before it goes on there, and before the operation ends.
    unsafe { IovecMut::new(address, bytes as usize) }
}

/// Copies what a put shall read, one piece behind the other, to a place in the pool that is free.
pub(crate) fn stage(pieces: &[Iovec], pool: &Segment, offset: u64) -> Iovec {
    let start = pool.base().as_ptr().wrapping_add(offset as usize);
    let mut at = start;
    for piece in pieces {
        // SAFETY: the place is staging memory of this rank's, with as much room as the peer has
        // granted; see also `source`.
        unsafe { weft_kernels::copy(&[at], piece.start(), piece.len()) };
        at = at.wrapping_add(piece.len());
    }
    source(start, at as u64 - start as u64)
}

/// Copies bytes to every destination.
#[inline]
pub(crate) fn copy(dsts: &[*mut u8], src: *const u8, bytes: u64) {
    // SAFETY: see [Note: Who may touch what].
    unsafe { weft_kernels::copy(dsts, src, bytes as usize) };
}

/// Copies elements that are represented in one way to where they are in another.
pub(crate) fn convert(
    dsts: &[*mut u8],
    to: Representation,
    src: *const u8,
    from: Representation,
    elements: u64,
) {
    let elements = elements as usize;
    match (from, to) {
        (Representation::Plain(from), Representation::Plain(to)) => {
            // SAFETY: see [Note: Who may touch what].
            unsafe { weft_kernels::convert(from, to, dsts, src, elements) }
        }
        _ => {
            for dst in dsts {
                let (dst, src) = (represented(*dst, to), represented(src, from));
                // SAFETY: see [Note: Who may touch what].
                unsafe { IsaLevel::best().represent(dst, src, elements) }
            }
        }
    }
}

/// Combines the contributions of a call's elements.
#[inline]
pub(crate) fn reduce(
    call: &Call,
    finish: Finish,
    dsts: &[*mut u8],
    srcs: &[*mut u8],
    elements: usize,
) {
    // SAFETY: pointers to mutable and to constant bytes are laid out the same.
    let srcs = unsafe { std::slice::from_raw_parts(srcs.as_ptr().cast(), srcs.len()) };
    // SAFETY: see [Note: Who may touch what].
    unsafe { weft_kernels::reduce(call.dtype, call.op.kernel(), dsts, srcs, elements, finish) };
}

/// Combines contributions of which some, or the destinations, are not elements of the call's type.
pub(crate) fn reduce_represented(
    call: &Call,
    finish: Finish,
    dsts: &[Represented<*mut u8>],
    srcs: &[Represented<*const u8>],
    elements: usize,
) {
    let (level, op) = (IsaLevel::best(), call.op.kernel());
    // SAFETY: see [Note: Who may touch what].
    unsafe { level.reduce_represented(call.dtype, op, dsts, srcs, elements, finish) };
}

/// Elements at an address.
pub(crate) fn represented<P>(address: P, representation: Representation) -> Represented<P> {
    Represented {
        address,
        representation,
    }
}

/// Copies elements, multiplied.
pub(crate) fn scale(dtype: DType, dst: *mut u8, src: *const u8, elements: usize, factor: f64) {
    // SAFETY: see [Note: Who may touch what].
    unsafe { weft_kernels::scale(dtype, dst, src, elements, factor) };
}

/// A copy of a call's input, multiplied.
pub(crate) fn scaled(call: &Call, ranks: u32, factor: f64) -> Vec<u8> {
    let elements = call.message_elements(ranks) as usize;
    let mut copy = vec![0; elements * call.dtype.size()];
    scale(call.dtype, copy.as_mut_ptr(), call.input, elements, factor);
    copy
}

/// Copies what a peer has put into the pool.
pub(crate) fn take(pool: &Segment, offset: u64, dst: *mut u8, bytes: u64) {
    let src = pool.base().as_ptr().wrapping_add(offset as usize);
    // SAFETY: the bytes lie in this rank's channel and were signalled; the caller has room for
    // them.
    unsafe { weft_kernels::copy(&[dst], src, bytes as usize) };
}

/// Copies a message to where it is received. The lengths are equal.
pub(crate) fn fill(dst: *mut u8, bytes: &[u8]) {
    // SAFETY: `Group::receive` obliges the caller to give memory for the whole message.
    unsafe { weft_kernels::copy(&[dst], bytes.as_ptr(), bytes.len()) };
}

#[cfg(test)]
mod tests {
    #[test]
    fn memory_of_no_bytes_may_be_nowhere() {
        assert!(super::bytes(std::ptr::null(), 0).is_empty());
    }
}
