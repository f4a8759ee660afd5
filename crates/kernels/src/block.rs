//! Blocks: the short runs of elements that kernels keep in registers.
//!
//! A kernel reads a block of every source before it writes that block to any destination. So a
//! destination can be a source, and the compiler need not consider overlaps.

/// Reads a block of elements of any alignment.
///
/// # Safety
/// `W` elements of type `T` can be read at `src`.
#[inline(always)]
pub(crate) unsafe fn read<T: Copy, const W: usize>(src: *const u8, block: &mut [T; W]) {
    // SAFETY: the caller's promise.
    *block = unsafe { src.cast::<[T; W]>().read_unaligned() };
}

/// Reads a block of elements of any alignment, each through `widen`.
///
/// # Safety
/// `W` elements of type `S` can be read at `src`.
#[inline(always)]
pub(crate) unsafe fn read_with<S: Copy, T, const W: usize>(
    src: *const u8,
    block: &mut [T; W],
    widen: impl Fn(S) -> T,
) {
    let src = src.cast::<S>();
    for (i, x) in block.iter_mut().enumerate() {
        // SAFETY: the caller's promise, as i < W.
        *x = widen(unsafe { src.wrapping_add(i).read_unaligned() });
    }
}

/// Writes a block, each element through `narrow`, to every destination at this byte offset, with
/// any alignment.
///
/// # Safety
/// `W` elements of type `D` can be written at `offset` of each of `dsts`.
#[inline(always)]
pub(crate) unsafe fn write_with<T: Copy, D: Copy + Default, const W: usize>(
    block: &[T; W],
    dsts: &[*mut u8],
    offset: usize,
    narrow: impl Fn(T) -> D,
) {
    let mut packed = [D::default(); W];
    for (p, x) in packed.iter_mut().zip(block) {
        *p = narrow(*x);
    }
    for dst in dsts {
        let dst = dst.wrapping_add(offset).cast::<[D; W]>();
        // SAFETY: the caller's promise.
        unsafe { dst.write_unaligned(packed) };
    }
}

/// The most bytes that a block has in memory.
const BLOCK_BYTES_MAX: usize = 512;

/// Room for one block: the end of a message, which does not fill a block, is computed here.
#[repr(align(64))]
pub(crate) struct Room([u8; BLOCK_BYTES_MAX]);

impl Room {
    /// An empty room.
    #[inline(always)]
    pub(crate) fn new() -> Room {
        Room([0; BLOCK_BYTES_MAX])
    }

    /// Its first byte.
    #[inline(always)]
    pub(crate) fn base(&mut self) -> *mut u8 {
        self.0.as_mut_ptr()
    }
}

/// Elements per block.
pub(crate) const fn block_elements(size: usize) -> usize {
    256 / size
}
