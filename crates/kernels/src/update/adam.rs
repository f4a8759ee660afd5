//! Adam and AdamW, by torch's `_single_tensor_adam`.

use super::{ElementKernel, Elements, decayed, load, multiply_add, store};

/// The numbers of a step, the same for all elements.
#[derive(Clone, Copy, Debug)]
pub struct AdamStep {
    /// Whether products are added without being rounded before: see [Note: torch's bits].
    pub fused: bool,
    /// 1, or -1 to maximize.
    pub sign: f32,
    /// The factor of the parameters, before anything else: 1 without decoupled weight decay.
    pub decay: f32,
    /// The factor of the parameters that are added to the gradients, or None without weight decay.
    pub gradient_decay: Option<f32>,
    /// The weight of the gradients in their moving average.
    pub weight: f32,
    /// The weight of the moving average of squares.
    pub squares_weight: f32,
    /// The weight of the gradients' squares in it.
    pub square_weight: f32,
    /// The divisor of roots.
    pub correction: f32,
    /// A number that is added to them then.
    pub epsilon: f32,
    /// The step size, negative.
    pub step_size: f32,
}

/// Elements of a parameter, with their gradients and states.
#[derive(Clone, Copy, Debug)]
pub struct AdamElements {
    /// The parameter's.
    pub parameters: *mut f32,
    /// The gradient's.
    pub gradients: *const f32,
    /// The moving averages of gradients.
    pub averages: *mut f32,
    /// The moving averages of their squares.
    pub squares: *mut f32,
    /// How many there are.
    pub count: usize,
}

impl AdamElements {
    /// The first `count` of them, or all, and the others.
    fn cut(&self, count: usize) -> (AdamElements, AdamElements) {
        let count = count.min(self.count);
        let first = AdamElements { count, ..*self };
        let others = AdamElements {
            parameters: self.parameters.wrapping_add(count),
            gradients: self.gradients.wrapping_add(count),
            averages: self.averages.wrapping_add(count),
            squares: self.squares.wrapping_add(count),
            count: self.count - count,
        };
        (first, others)
    }
}

/// An update of elements of several parameters, block by block.
pub struct AdamUpdate {
    steps: Vec<AdamStep>,
    /// With the numbers of their steps, the next ones last.
    rest: Vec<(usize, AdamElements)>,
    /// The block that has begun.
    begun: Vec<(usize, AdamElements)>,
    roots: *mut f32,
    block: usize,
}

// SAFETY: the memory belongs to the caller of `advance`, on any thread.
unsafe impl Send for AdamUpdate {}
// SAFETY: nothing is done by shared reference.
unsafe impl Sync for AdamUpdate {}

impl AdamUpdate {
    /// An update of elements, each by the step with its number, in blocks of `block` elements.
    /// `roots` is memory for a block.
    pub fn new(
        steps: Vec<AdamStep>,
        mut elements: Vec<(usize, AdamElements)>,
        roots: *mut f32,
        block: usize,
    ) -> AdamUpdate {
        elements.reverse();
        AdamUpdate {
            steps,
            rest: elements,
            begun: Vec::new(),
            roots,
            block,
        }
    }

    /// Ends the block before, whose roots the caller has taken, and begins the next one: leaves
    /// its squares in the memory for roots, and returns how many there are; 0 after the last block.
    ///
    /// # Panics
    /// If there is no step with a number that was given.
    ///
    /// # Safety
    /// Nothing overlaps, all of the memory is there, and nobody else uses it.
    pub unsafe fn advance(&mut self) -> usize {
        let mut place = 0;
        for (step, elements) in self.begun.drain(..) {
            let roots = self.roots.wrapping_add(place);
            // SAFETY: the caller's promise; a block has room there.
            unsafe { self.steps[step].finish(&elements, roots) };
            place += elements.count;
        }
        place = 0;
        while place < self.block
            && let Some((step, elements)) = self.rest.pop()
        {
            let (first, others) = elements.cut(self.block - place);
            if others.count > 0 {
                self.rest.push((step, others));
            }
            let roots = self.roots.wrapping_add(place);
            // SAFETY: the caller's promise; a block has room there.
            unsafe { self.steps[step].begin(&first, roots) };
            self.begun.push((step, first));
            place += first.count;
        }
        place
    }
}

impl AdamStep {
    /// Updates the moving averages, and copies those of squares.
    ///
    /// # Safety
    /// The memory is there, does not overlap, and nobody else uses it.
    unsafe fn begin(&self, elements: &AdamElements, roots: *mut f32) {
        let kernel = Moments {
            step: self,
            memory: elements,
            roots,
        };
        // SAFETY: the caller's promise.
        unsafe { self.compute(kernel, elements.count) }
    }

    /// Updates the parameters by the roots.
    ///
    /// # Safety
    /// That of [`AdamStep::begin`].
    unsafe fn finish(&self, elements: &AdamElements, roots: *const f32) {
        let kernel = Parameters {
            step: self,
            memory: elements,
            roots,
        };
        // SAFETY: the caller's promise.
        unsafe { self.compute(kernel, elements.count) }
    }

    /// # Safety
    /// That of [`AdamStep::begin`].
    unsafe fn compute(&self, kernel: impl ElementKernel, count: usize) {
        let fused = self.fused;
        let elements = Elements {
            kernel,
            fused,
            count,
        };
        // SAFETY: the caller's promise.
        unsafe { elements.compute() }
    }
}

/// The first pass.
struct Moments<'a> {
    step: &'a AdamStep,
    memory: &'a AdamElements,
    roots: *mut f32,
}

impl ElementKernel for Moments<'_> {
    #[inline(always)]
    unsafe fn elements<const FUSED: bool, const W: usize>(&self, first: usize) {
        let (step, memory) = (self.step, self.memory);
        // SAFETY: the caller's promise.
        let parameters = unsafe { load::<W>(memory.parameters, first) };
        // SAFETY: the caller's promise.
        let gradients = unsafe { load::<W>(memory.gradients, first) };
        // SAFETY: the caller's promise.
        let mut averages = unsafe { load::<W>(memory.averages, first) };
        // SAFETY: the caller's promise.
        let mut squares = unsafe { load::<W>(memory.squares, first) };
        let gradients = decayed::<FUSED, W>(gradients, step.sign, step.gradient_decay, &parameters);
        // torch's interpolation begins at the nearer end.
        let near = step.weight.abs() < 0.5;
        let factor = if near { step.weight } else { step.weight - 1.0 };
        for (average, gradient) in averages.iter_mut().zip(gradients) {
            let base = if near { *average } else { gradient };
            *average = multiply_add::<FUSED>(factor, gradient - *average, base);
        }
        for (square, gradient) in squares.iter_mut().zip(gradients) {
            let before = *square * step.squares_weight;
            *square = multiply_add::<FUSED>(step.square_weight * gradient, gradient, before);
        }
        // SAFETY: the caller's promise.
        unsafe { store(memory.averages, first, averages) };
        // SAFETY: the caller's promise.
        unsafe { store(memory.squares, first, squares) };
        // SAFETY: the caller's promise.
        unsafe { store(self.roots, first, squares) };
    }
}

/// The second pass.
struct Parameters<'a> {
    step: &'a AdamStep,
    memory: &'a AdamElements,
    roots: *const f32,
}

impl ElementKernel for Parameters<'_> {
    #[inline(always)]
    unsafe fn elements<const FUSED: bool, const W: usize>(&self, first: usize) {
        let (step, memory) = (self.step, self.memory);
        // SAFETY: the caller's promise.
        let mut parameters = unsafe { load::<W>(memory.parameters, first) };
        // SAFETY: the caller's promise.
        let averages = unsafe { load::<W>(memory.averages, first) };
        // SAFETY: the caller's promise.
        let roots = unsafe { load::<W>(self.roots, first) };
        for ((parameter, average), root) in parameters.iter_mut().zip(averages).zip(roots) {
            let divisor = root / step.correction + step.epsilon;
            *parameter = *parameter * step.decay + step.step_size * average / divisor;
        }
        // SAFETY: the caller's promise.
        unsafe { store(memory.parameters, first, parameters) };
    }
}
