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
    let stride = if dsts.len() > 1 { STRIDE } else { bytes.max(1) };
    for start in (0..bytes).step_by(stride) {
        let length = stride.min(bytes - start);
        for dst in dsts.iter().filter(|dst| !std::ptr::eq(**dst, src)) {
            let to = dst.wrapping_add(start);
            // SAFETY: the caller's promise; the range lies within `bytes`.
            unsafe { to.copy_from_nonoverlapping(src.wrapping_add(start), length) };
        }
    }
}
