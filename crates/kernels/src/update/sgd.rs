//! SGD with momentum, by torch's `_single_tensor_sgd`.

use super::{ElementKernel, Elements, decayed, load, multiply_add, store};

/// The numbers of a step, the same for all elements.
#[derive(Clone, Copy, Debug)]
pub struct SgdStep {
    /// Whether products are added without being rounded before: see [Note: torch's bits].
    pub fused: bool,
    /// 1, or -1 to maximize.
    pub sign: f32,
    /// The factor of the parameters that are added to the gradients, or None without weight decay.
    pub gradient_decay: Option<f32>,
    /// The factor of the momenta.
    pub momentum: f32,
    /// The factor of the gradients that are added to the momenta.
    pub undamped: f32,
    /// Whether the momenta are looked at one step ahead.
    pub nesterov: bool,
    /// The learning rate, negative.
    pub step_size: f32,
}

/// Elements of a parameter, with their gradients and momenta.
#[derive(Clone, Copy, Debug)]
pub struct SgdElements {
    /// The parameter's.
    pub parameters: *mut f32,
    /// The gradient's.
    pub gradients: *const f32,
    /// The momenta.
    pub momenta: *mut f32,
    /// How many there are.
    pub count: usize,
}

impl SgdStep {
    /// Updates elements.
    ///
    /// # Safety
    /// Nothing overlaps, all of the memory is there, and nobody else uses it.
    pub unsafe fn update(&self, elements: &SgdElements) {
        let elements = Elements {
            kernel: Update {
                step: self,
                memory: elements,
            },
            fused: self.fused,
            count: elements.count,
        };
        // SAFETY: the caller's promise.
        unsafe { elements.compute() }
    }
}

struct Update<'a> {
    step: &'a SgdStep,
    memory: &'a SgdElements,
}

impl ElementKernel for Update<'_> {
    #[inline(always)]
    unsafe fn elements<const FUSED: bool, const W: usize>(&self, first: usize) {
        let (step, memory) = (self.step, self.memory);
        // SAFETY: the caller's promise.
        let mut parameters = unsafe { load::<W>(memory.parameters, first) };
        // SAFETY: the caller's promise.
        let gradients = unsafe { load::<W>(memory.gradients, first) };
        // SAFETY: the caller's promise.
        let mut momenta = unsafe { load::<W>(memory.momenta, first) };
        let decay = step.gradient_decay;
        let mut gradients = decayed::<FUSED, W>(gradients, step.sign, decay, &parameters);
        for (moved, gradient) in momenta.iter_mut().zip(&mut gradients) {
            *moved = multiply_add::<FUSED>(step.undamped, *gradient, *moved * step.momentum);
            let ahead = multiply_add::<FUSED>(step.momentum, *moved, *gradient);
            *gradient = if step.nesterov { ahead } else { *moved };
        }
        for (parameter, gradient) in parameters.iter_mut().zip(gradients) {
            *parameter = multiply_add::<FUSED>(step.step_size, gradient, *parameter);
        }
        // SAFETY: the caller's promise.
        unsafe { store(memory.parameters, first, parameters) };
        // SAFETY: the caller's promise.
        unsafe { store(memory.momenta, first, momenta) };
    }
}
