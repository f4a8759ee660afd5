//! All access to message memory, in one file.
//!
//! [Note: Memory access] Addresses are computed from a program's operands, and so from a verified
//! schedule, and from granted ranges. A schedule's signals order all accesses of different ranks to
//! the same bytes (the verifier checks this). `Group::issue` requires that the caller does not use
//! its buffers until the operation has ended.

use weft_kernels::{AverageStep, DType, Finish, IsaLevel, Representation, Represented};
use weft_transport::{Iovec, IovecMut, Segment};

use weft_call::Call;

/// The bytes of a message that is sent before the call returns. Any address will do for 0 bytes.
///
/// # Safety
/// The bytes stay alive and unchanged for as long as the slice is used.
pub unsafe fn bytes<'a>(address: *const u8, bytes: u64) -> &'a [u8] {
    if bytes == 0 {
        return &[];
    }
    // SAFETY: as this function requires.
    unsafe { std::slice::from_raw_parts(address, bytes as usize) }
}

/// Memory of this rank that a put reads.
///
/// # Safety
/// See [Note: Memory access]. Nothing writes to the bytes while a put reads them.
#[inline]
pub unsafe fn source(address: *const u8, bytes: u64) -> Iovec {
    // SAFETY: as this function requires.
    unsafe { Iovec::new(address, bytes as usize) }
}

/// Memory of the caller to register with adapters.
///
/// # Safety
/// The bytes stay mapped until the registration has ended. Only puts read them, each of which names
/// them again.
pub unsafe fn registered(address: *const u8, bytes: u64) -> Iovec {
    // SAFETY: as this function requires.
    unsafe { Iovec::new(address, bytes as usize) }
}

/// Memory of the caller that a link writes until its redirection ends.
///
/// # Safety
/// See [Note: Memory access] and [Note: Arrivals]. Only the link uses the bytes until its
/// redirection has ended.
pub unsafe fn target(address: *mut u8, bytes: u64) -> IovecMut {
    // SAFETY: as this function requires.
    unsafe { IovecMut::new(address, bytes as usize) }
}

/// Copies the pieces of a put's source, one after the other, to a free place in the pool.
///
/// # Safety
/// The pieces may be read, and the place is staging memory of this rank's, with room for them,
/// which no put reads any more.
#[inline]
pub unsafe fn stage(pieces: &[Iovec], pool: &Segment, offset: u64) -> Iovec {
    let start = pool.base().as_ptr().wrapping_add(offset as usize);
    let mut at = start;
    for piece in pieces {
        // SAFETY: as this function requires.
        unsafe { weft_kernels::copy(&[at], piece.start(), piece.len()) };
        at = at.wrapping_add(piece.len());
    }
    // SAFETY: as this function requires, and the bytes have just been written.
    unsafe { source(start, at as u64 - start as u64) }
}

/// Copies bytes to every destination.
///
/// # Safety
/// See [Note: Memory access]: the source may be read and all destinations written.
#[inline]
pub unsafe fn copy(dsts: &[*mut u8], src: *const u8, bytes: u64) {
    // SAFETY: as this function requires.
    unsafe { weft_kernels::copy(dsts, src, bytes as usize) };
}

/// Copies bytes of a message that is larger than caches to every destination.
///
/// # Safety
/// As of [`copy`].
pub unsafe fn copy_past_caches(dsts: &[*mut u8], src: *const u8, bytes: u64) {
    // SAFETY: as this function requires.
    unsafe { weft_kernels::copy_past_caches(dsts, src, bytes as usize) };
}

/// Copies elements into another representation.
///
/// # Safety
/// See [Note: Memory access]: the source may be read and all destinations written.
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
            // SAFETY: as this function requires.
            unsafe { weft_kernels::convert(from, to, dsts, src, elements) }
        }
        _ => {
            for dst in dsts {
                let (dst, src) = (represented(*dst, to), represented(src, from));
                // SAFETY: as this function requires.
                unsafe { IsaLevel::best().represent(dst, src, elements) }
            }
        }
    }
}

/// Combines the contributions of a call's elements.
///
/// # Safety
/// See [Note: Memory access]: the sources may be read and the destinations written.
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
    // SAFETY: as this function requires.
    unsafe { weft_kernels::reduce(call.dtype, call.op.kernel(), dsts, srcs, elements, finish) };
}

/// Adds contributions to an average of 16-bit floats, or sums of them.
///
/// # Safety
/// See [Note: Memory access]: the sources may be read and the destinations written.
pub unsafe fn average_halves(
    call: &Call,
    step: AverageStep<'_>,
    dsts: &[*mut u8],
    srcs: &[*mut u8],
    elements: usize,
) {
    // SAFETY: pointers to mutable and to constant bytes are laid out the same.
    let srcs = unsafe { std::slice::from_raw_parts(srcs.as_ptr().cast(), srcs.len()) };
    // SAFETY: as this function requires.
    unsafe { weft_kernels::average_halves(call.dtype, dsts, srcs, elements, step) };
}

/// Combines contributions where some operands are not elements of the call's type.
///
/// # Safety
/// See [Note: Memory access]: the sources may be read and the destinations written.
pub unsafe fn reduce_represented(
    call: &Call,
    finish: Finish,
    dsts: &[Represented<*mut u8>],
    srcs: &[Represented<*const u8>],
    elements: usize,
) {
    let (level, op) = (IsaLevel::best(), call.op.kernel());
    // SAFETY: as this function requires.
    unsafe { level.reduce_represented(call.dtype, op, dsts, srcs, elements, finish) };
}

/// Elements at an address.
pub fn represented<P>(address: P, representation: Representation) -> Represented<P> {
    Represented {
        address,
        representation,
    }
}

/// Copies elements, multiplied by a factor.
///
/// # Safety
/// See [Note: Memory access]: the source may be read and the destination written.
pub unsafe fn scale(dtype: DType, dst: *mut u8, src: *const u8, elements: usize, factor: f64) {
    // SAFETY: as this function requires.
    unsafe { weft_kernels::scale(dtype, dst, src, elements, factor) };
}

/// A copy of a call's input, multiplied by a factor.
///
/// # Safety
/// The call's input may be read.
pub unsafe fn scaled(call: &Call, ranks: u32, factor: f64) -> Vec<u8> {
    let elements = call.message_elements(ranks) as usize;
    let mut copy = vec![0; elements * call.dtype.size()];
    // SAFETY: as this function requires; the copy has as many elements.
    unsafe { scale(call.dtype, copy.as_mut_ptr(), call.input, elements, factor) };
    copy
}

/// Copies data that a peer has put into the pool.
///
/// # Safety
/// The bytes at the offset are in the pool, and this rank may read them; the destination has room
/// for them.
#[inline]
pub unsafe fn take(pool: &Segment, offset: u64, dst: *mut u8, bytes: u64) {
    let src = pool.base().as_ptr().wrapping_add(offset as usize);
    // SAFETY: as this function requires.
    unsafe { weft_kernels::copy(&[dst], src, bytes as usize) };
}

/// Copies a message to its destination. The lengths are equal.
///
/// # Safety
/// The destination has room for the bytes, and nothing else uses it.
#[inline]
pub unsafe fn fill(dst: *mut u8, bytes: &[u8]) {
    // SAFETY: as this function requires.
    unsafe { weft_kernels::copy(&[dst], bytes.as_ptr(), bytes.len()) };
}

#[cfg(test)]
mod tests {
    #[test]
    fn null_address_is_valid_for_zero_bytes() {
        // SAFETY: there are no bytes.
        assert!(unsafe { super::bytes(std::ptr::null(), 0) }.is_empty());
    }
}
