//! Iteration over a message block by block.

use std::ops::Range;

use crate::block::Room;
use crate::isa::{Isa, KernelJob};

/// An operation on one block of `W` elements.
pub(crate) trait BlockKernel<const W: usize> {
    /// Bytes of an element in a source.
    const READ: usize;
    /// Bytes of an element in a destination.
    const WRITE: usize;

    /// Reads a block of every source, then writes one at this byte offset of every destination.
    /// Always inlined.
    ///
    /// # Safety
    /// A block can be read and written there, and the processor has the instructions of `I`.
    unsafe fn block<I: Isa>(
        &self,
        srcs: impl Iterator<Item = *const u8> + Clone,
        dsts: &[*mut u8],
        offset: usize,
    );
}

/// Applies a kernel to whole vectors, `W` elements at a time.
///
/// As a [`KernelJob`] it requires that every source can be read and every destination written for
/// `elements` elements.
pub(crate) struct Sweep<'a, K, const W: usize> {
    pub(crate) dsts: &'a [*mut u8],
    pub(crate) srcs: &'a [*const u8],
    pub(crate) elements: usize,
    pub(crate) kernel: K,
}

impl<K: BlockKernel<W>, const W: usize> KernelJob for Sweep<'_, K, W> {
    #[inline(always)]
    unsafe fn run<I: Isa>(self) {
        let whole = self.elements / W * W;
        for start in (0..whole).step_by(W) {
            let srcs = self
                .srcs
                .iter()
                .map(|src| src.wrapping_add(start * K::READ));
            // SAFETY: the caller's promise; the block lies within `elements`.
            unsafe { self.kernel.block::<I>(srcs, self.dsts, start * K::WRITE) };
        }
        if whole < self.elements {
            // SAFETY: the caller's promise.
            unsafe { self.part::<I>(whole..self.elements) };
        }
    }
}

impl<K: BlockKernel<W>, const W: usize> Sweep<'_, K, W> {
    /// Does less than a block, by way of memory that has room for a whole one.
    ///
    /// # Safety
    /// That of [`KernelJob::run`].
    #[inline(always)]
    unsafe fn part<I: Isa>(&self, elements: Range<usize>) {
        let (mut incoming, mut outgoing) = (Room::new(), Room::new());
        let (incoming, outgoing) = (incoming.base(), outgoing.base());
        let srcs = self.srcs.iter().map(|src| {
            let from = src.wrapping_add(elements.start * K::READ);
            // SAFETY: the caller's promise, and there is room for a whole block.
            unsafe { incoming.copy_from_nonoverlapping(from, elements.len() * K::READ) };
            incoming.cast_const()
        });
        // SAFETY: there is room for a whole block.
        unsafe { self.kernel.block::<I>(srcs, &[outgoing], 0) };
        for dst in self.dsts {
            let to = dst.wrapping_add(elements.start * K::WRITE);
            // SAFETY: the caller's promise.
            unsafe { to.copy_from_nonoverlapping(outgoing, elements.len() * K::WRITE) };
        }
    }
}
