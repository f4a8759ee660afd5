//! Updates of optimizers in one or two passes, with the bits of torch's default implementations.
//!
//! [Note: torch's bits] torch's default Adam, AdamW and SGD make a pass over a tensor for every
//! operation. Each rounds as its own kernel was compiled: a product that is added to something is
//! rounded before, or not (*fused*), in all of them. Here the same operations follow one another
//! for a block of elements, each rounded as there. Which of the two holds, and whether the
//! formulas are still torch's, is found by a trial (python/weft/torch/parallel/native_updates.py).
//!
//! Square roots are the exception: torch takes them by a library whose last bit differs from the
//! correctly rounded one now and then. So Adam's update is two passes over a few hundred KiB, with
//! torch's root between them.
//!
//! Other kernels ignore the floating-point environment of the calling thread; these use it, since
//! torch's operations would.

mod adam;
mod sgd;
#[cfg(test)]
mod tests;

pub use adam::{AdamElements, AdamStep, AdamUpdate};
pub use sgd::{SgdElements, SgdStep};

use crate::IsaLevel;
use crate::isa::{Isa, KernelJob};

/// Elements that are computed in registers.
const BLOCK: usize = 64;

/// A computation on elements that do not depend on each other.
trait ElementKernel {
    /// Computes `W` elements from this one on. Products are added without being rounded before if
    /// `FUSED`. Always inlined.
    ///
    /// # Safety
    /// The kernel's memory has them.
    unsafe fn elements<const FUSED: bool, const W: usize>(&self, first: usize);
}

/// A kernel on its first elements.
struct Elements<K> {
    kernel: K,
    fused: bool,
    count: usize,
}

impl<K: ElementKernel> KernelJob for Elements<K> {
    #[inline(always)]
    unsafe fn run<I: Isa>(self) {
        if self.fused {
            // SAFETY: the caller's promise.
            unsafe { self.sweep::<true>() };
        } else {
            // SAFETY: the caller's promise.
            unsafe { self.sweep::<false>() };
        }
    }
}

impl<K: ElementKernel> Elements<K> {
    /// Computes them with the best instructions of this processor.
    ///
    /// # Safety
    /// The kernel's memory has `count` elements, and no other thread uses it.
    unsafe fn compute(self) {
        // SAFETY: the caller's promise; the best level is an available one.
        unsafe { IsaLevel::best().run_in_callers_environment(self) }
    }

    /// # Safety
    /// That of [`Elements::compute`].
    #[inline(always)]
    unsafe fn sweep<const FUSED: bool>(&self) {
        let whole = self.count / BLOCK * BLOCK;
        for first in (0..whole).step_by(BLOCK) {
            // SAFETY: the caller's promise; these elements are among the first `count`.
            unsafe { self.kernel.elements::<FUSED, BLOCK>(first) };
        }
        for first in whole..self.count {
            // SAFETY: the caller's promise.
            unsafe { self.kernel.elements::<FUSED, 1>(first) };
        }
    }
}

/// The gradients that an update follows: with their sign, and with `decay` times the parameters.
#[inline(always)]
fn decayed<const FUSED: bool, const W: usize>(
    mut gradients: [f32; W],
    sign: f32,
    decay: Option<f32>,
    parameters: &[f32; W],
) -> [f32; W] {
    for gradient in &mut gradients {
        *gradient *= sign;
    }
    if let Some(decay) = decay {
        for (gradient, parameter) in gradients.iter_mut().zip(parameters) {
            *gradient = multiply_add::<FUSED>(decay, *parameter, *gradient);
        }
    }
    gradients
}

/// `a * b + c`, rounded once if `FUSED`, else twice.
#[inline(always)]
fn multiply_add<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// Reads `W` elements from the one with this number on.
///
/// # Safety
/// They can be read.
#[inline(always)]
unsafe fn load<const W: usize>(from: *const f32, first: usize) -> [f32; W] {
    // SAFETY: the caller's promise.
    unsafe { from.wrapping_add(first).cast::<[f32; W]>().read_unaligned() }
}

/// Writes `W` elements from the one with this number on.
///
/// # Safety
/// They can be written.
#[inline(always)]
unsafe fn store<const W: usize>(to: *mut f32, first: usize, elements: [f32; W]) {
    let to = to.wrapping_add(first).cast::<[f32; W]>();
    // SAFETY: the caller's promise.
    unsafe { to.write_unaligned(elements) };
}
