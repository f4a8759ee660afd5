//! Copying to several destinations.

/// The bytes that are copied to every destination before the next ones: they are still in the
/// nearest cache for the last one.
const STRIDE: usize = 8 * 1024;

/// Copies `bytes` bytes to every destination, reading the source from memory once.
///
/// # Safety
/// `src` can be read and every one of `dsts` written for `bytes` bytes. A destination is `src`
/// itself or does not overlap it; destinations do not overlap each other. No other thread writes to
/// any of this memory, or reads the destinations, meanwhile.
pub unsafe fn copy(dsts: &[*mut u8], src: *const u8, bytes: usize) {
    // SAFETY: the caller's promise; the ranges lie within `bytes`.
    in_strides(dsts, src, bytes, |to, from, length| unsafe {
        to.copy_from_nonoverlapping(from, length);
    });
}

/// The same past the caches where that is possible, for destinations of more bytes than caches
/// keep: the lines that are written are not read from memory first.
///
/// # Safety
/// As of [`copy`].
#[cold] // seldom, and never in a short operation
#[inline(never)]
pub unsafe fn copy_past_caches(dsts: &[*mut u8], src: *const u8, bytes: usize) {
    // SAFETY: the caller's promise; the ranges lie within `bytes`.
    in_strides(dsts, src, bytes, |to, from, length| unsafe {
        stream(to, from, length);
    });
    fence();
}

fn in_strides(
    dsts: &[*mut u8],
    src: *const u8,
    bytes: usize,
    copy: impl Fn(*mut u8, *const u8, usize),
) {
    let stride = if dsts.len() > 1 { STRIDE } else { bytes.max(1) };
    for start in (0..bytes).step_by(stride) {
        let length = stride.min(bytes - start);
        for dst in dsts.iter().filter(|dst| !std::ptr::eq(**dst, src)) {
            copy(dst.wrapping_add(start), src.wrapping_add(start), length);
        }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
use x86_64::{fence, stream};

/// Stores past the caches. Every processor of this architecture has them (SSE2).
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64 {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    const LINE: usize = 64;
    const VECTOR: usize = size_of::<__m128i>();

    /// Copies bytes; [`fence`] orders them before later stores.
    ///
    /// # Safety
    /// The source can be read and the destination written, and they do not overlap.
    pub(super) unsafe fn stream(to: *mut u8, from: *const u8, bytes: usize) {
        let head = to.align_offset(LINE).min(bytes);
        let tail = head + (bytes - head) / LINE * LINE;
        // SAFETY: the caller's promise, as for all that follows; the parts lie within `bytes`.
        unsafe { to.copy_from_nonoverlapping(from, head) };
        for at in (head..tail).step_by(VECTOR) {
            // SAFETY: as above; the address need not be aligned.
            let value = unsafe { _mm_loadu_si128(from.wrapping_add(at).cast()) };
            // SAFETY: as above; a line's vectors are aligned.
            unsafe { _mm_stream_si128(to.wrapping_add(at).cast(), value) };
        }
        let (to, from) = (to.wrapping_add(tail), from.wrapping_add(tail));
        // SAFETY: as above.
        unsafe { to.copy_from_nonoverlapping(from, bytes - tail) };
    }

    /// Makes streamed bytes visible before all that is stored afterwards.
    pub(super) fn fence() {
        // SAFETY: every processor of this architecture has the instruction.
        unsafe { _mm_sfence() };
    }
}

/// # Safety
/// The source can be read and the destination written, and they do not overlap.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
unsafe fn stream(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { to.copy_from_nonoverlapping(from, bytes) };
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn fence() {}
