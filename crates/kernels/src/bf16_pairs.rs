//! Blocks of bfloat16 as pairs.
//!
//! A block holds its elements of even index in its first half and those of odd index in its second:
//! then each `u32` of memory gives one of each by a shift and a mask, and vectors need no
//! shuffling. Kernels that treat all elements in the same way do not see the difference.

use crate::half_float::rounded_bf16;

/// Reads a block.
///
/// # Safety
/// `W` elements can be read at `src`.
#[inline(always)]
pub(crate) unsafe fn read<const W: usize>(src: *const u8, block: &mut [f32; W]) {
    const { assert!(W.is_multiple_of(2)) };
    let src = src.cast::<u32>();
    let (even, odd) = block.split_at_mut(W / 2);
    for (i, (even, odd)) in even.iter_mut().zip(odd).enumerate() {
        // SAFETY: the caller's promise, as i < W / 2.
        let pair = unsafe { src.wrapping_add(i).read_unaligned() };
        *even = f32::from_bits(pair << 16);
        *odd = f32::from_bits(pair & 0xffff_0000);
    }
}

/// Rounds a block and writes it to every destination, at this byte offset.
///
/// # Safety
/// `W` elements can be written there.
#[inline(always)]
pub(crate) unsafe fn write<const W: usize>(block: &[f32; W], dsts: &[*mut u8], offset: usize) {
    let mut packed = [0u32; W];
    let (even, odd) = block.split_at(W / 2);
    for (pair, (even, odd)) in packed.iter_mut().zip(even.iter().zip(odd)) {
        *pair = (rounded_bf16(*even) >> 16) | (rounded_bf16(*odd) & 0xffff_0000);
    }
    for dst in dsts {
        for (i, pair) in packed[..W / 2].iter().enumerate() {
            let dst = dst.wrapping_add(offset).cast::<u32>().wrapping_add(i);
            // SAFETY: the caller's promise, as i < W / 2.
            unsafe { dst.write_unaligned(*pair) };
        }
    }
}
