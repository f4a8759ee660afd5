//! The one file of the runtime that touches message memory.
//!
//! [Note: Who may touch what] Addresses come from a program's operands, computed from a verified
//! schedule and from ranges that were granted. A schedule's signals order all accesses of different
//! ranks to the same bytes (the verifier has checked it), and `Group::issue` obliges the caller to
//! leave its buffers alone until the operation is over.

use weft_kernels::{AverageStep, DType, Finish, IsaLevel, Representation, Represented};
use weft_transport::{Iovec, IovecMut, Segment};

use weft_call::Call;

/// All of a message that is sent before the call returns; an address of no bytes may be any.
///
/// # Safety
/// The bytes stay alive and unchanged for as long as the slice is used.
pub unsafe fn bytes<'a>(address: *const u8, bytes: u64) -> &'a [u8] {
    if bytes == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(address, bytes as usize) }
}

/// Memory of this rank that a put reads.
///
/// # Safety
/// See [Note: Who may touch what]. Nothing writes to the bytes while a put reads them.
#[inline]
pub unsafe fn source(address: *const u8, bytes: u64) -> Iovec {
    // SAFETY: the caller's promise.
    unsafe { Iovec::new(address, bytes as usize) }
}

/// Memory of the caller's that adapters shall know.
///
/// # Safety
/// The bytes stay mapped until the registration has ended. They are read by puts only, of which
/// each names them again.
pub unsafe fn registered(address: *const u8, bytes: u64) -> Iovec {
    // SAFETY: the caller's promise.
    unsafe { Iovec::new(address, bytes as usize) }
}

/// Memory of the caller's that a link writes, until it is told to stop.
///
/// # Safety
/// See [Note: Who may touch what], and [Note: Arrivals] of who else does. The bytes are the
/// link's until it has stopped writing there.
pub unsafe fn target(address: *mut u8, bytes: u64) -> IovecMut {
    // SAFETY: the caller's promise.
    unsafe { IovecMut::new(address, bytes as usize) }
}

/// Copies what a put shall read, one piece behind the other, to a place in the pool that is free.
///
/// # Safety
/// The pieces may be read, and the place is staging memory of this rank's, with room for them,
/// which no put reads any more.
#[inline]
pub unsafe fn stage(pieces: &[Iovec], pool: &Segment, offset: u64) -> Iovec {
    let start = pool.base().as_ptr().wrapping_add(offset as usize);
    let mut at = start;
    for piece in pieces {
        // SAFETY: the caller's promise.
        unsafe { weft_kernels::copy(&[at], piece.start(), piece.len()) };
        at = at.wrapping_add(piece.len());
    }
    // SAFETY: the caller's promise, and the bytes have just been written.
    unsafe { source(start, at as u64 - start as u64) }
}

/// Copies bytes to every destination.
///
/// # Safety
/// See [Note: Who may touch what]: the source may be read and all destinations written.
#[inline]
pub unsafe fn copy(dsts: &[*mut u8], src: *const u8, bytes: u64) {
    // SAFETY: the caller's promise.
    unsafe { weft_kernels::copy(dsts, src, bytes as usize) };
}

/// Copies elements that are represented in one way to where they are in another.
///
/// # Safety
/// See [Note: Who may touch what]: the source may be read and all destinations written.
pub unsafe fn convert(
    dsts: &[*mut u8],
    to: Representation,
    src: *const u8,
    from: Representation,
    elements: u64,
) {
    let elements = elements as usize;
    match (from, to) {
        (Representation::Plain(from), Representation::Plain(to)) => {
            // SAFETY: the caller's promise.
            unsafe { weft_kernels::convert(from, to, dsts, src, elements) }
        }
        _ => {
            for dst in dsts {
                let (dst, src) = (represented(*dst, to), represented(src, from));
                // SAFETY: the caller's promise.
                unsafe { IsaLevel::best().represent(dst, src, elements) }
            }
        }
    }
}

/// Combines the contributions of a call's elements.
///
/// # Safety
/// See [Note: Who may touch what]: the sources may be read and the destinations written.
#[inline]
pub unsafe fn reduce(
    call: &Call,
    finish: Finish,
    dsts: &[*mut u8],
    srcs: &[*mut u8],
    elements: usize,
) {
    // SAFETY: pointers to mutable and to constant bytes are laid out the same.
    let srcs = unsafe { std::slice::from_raw_parts(srcs.as_ptr().cast(), srcs.len()) };
    // SAFETY: the caller's promise.
    unsafe { weft_kernels::reduce(call.dtype, call.op.kernel(), dsts, srcs, elements, finish) };
}

/// Adds contributions to an average of 16-bit floats, or sums of them.
///
/// # Safety
/// See [Note: Who may touch what]: the sources may be read and the destinations written.
pub unsafe fn average_halves(
    call: &Call,
    step: AverageStep<'_>,
    dsts: &[*mut u8],
    srcs: &[*mut u8],
    elements: usize,
) {
    // SAFETY: pointers to mutable and to constant bytes are laid out the same.
    let srcs = unsafe { std::slice::from_raw_parts(srcs.as_ptr().cast(), srcs.len()) };
    // SAFETY: the caller's promise.
    unsafe { weft_kernels::average_halves(call.dtype, dsts, srcs, elements, step) };
}

/// Combines contributions of which some, or the destinations, are not elements of the call's type.
///
/// # Safety
/// See [Note: Who may touch what]: the sources may be read and the destinations written.
pub unsafe fn reduce_represented(
    call: &Call,
    finish: Finish,
    dsts: &[Represented<*mut u8>],
    srcs: &[Represented<*const u8>],
    elements: usize,
) {
    let (level, op) = (IsaLevel::best(), call.op.kernel());
    // SAFETY: the caller's promise.
    unsafe { level.reduce_represented(call.dtype, op, dsts, srcs, elements, finish) };
}

/// Elements at an address.
pub fn represented<P>(address: P, representation: Representation) -> Represented<P> {
    Represented {
        address,
        representation,
    }
}

/// Copies elements, multiplied.
///
/// # Safety
/// See [Note: Who may touch what]: the source may be read and the destination written.
pub unsafe fn scale(dtype: DType, dst: *mut u8, src: *const u8, elements: usize, factor: f64) {
    // SAFETY: the caller's promise.
    unsafe { weft_kernels::scale(dtype, dst, src, elements, factor) };
}

/// A copy of a call's input, multiplied.
///
/// # Safety
/// The call's input may be read.
pub unsafe fn scaled(call: &Call, ranks: u32, factor: f64) -> Vec<u8> {
    let elements = call.message_elements(ranks) as usize;
    let mut copy = vec![0; elements * call.dtype.size()];
    // SAFETY: the caller's promise; the copy has as many elements.
    unsafe { scale(call.dtype, copy.as_mut_ptr(), call.input, elements, factor) };
    copy
}

/// Copies what a peer has put into the pool.
///
/// # Safety
/// The bytes at the offset lie in the pool and are this rank's to read; the destination has room
/// for them.
#[inline]
pub unsafe fn take(pool: &Segment, offset: u64, dst: *mut u8, bytes: u64) {
    let src = pool.base().as_ptr().wrapping_add(offset as usize);
    // SAFETY: the caller's promise.
    unsafe { weft_kernels::copy(&[dst], src, bytes as usize) };
}

/// Copies a message to where it is received. The lengths are equal.
///
/// # Safety
/// The destination has room for the bytes, and nobody else touches it.
#[inline]
pub unsafe fn fill(dst: *mut u8, bytes: &[u8]) {
    // SAFETY: the caller's promise.
    unsafe { weft_kernels::copy(&[dst], bytes.as_ptr(), bytes.len()) };
}

#[cfg(test)]
mod tests {
    #[test]
    fn memory_of_no_bytes_may_be_nowhere() {
        // SAFETY: there are no bytes.
        assert!(unsafe { super::bytes(std::ptr::null(), 0) }.is_empty());
    }
}
