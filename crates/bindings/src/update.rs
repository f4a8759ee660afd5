//! Updates of optimizers, on memory that the caller keeps.

use pyo3::prelude::*;
use weft_kernels::{AdamElements, AdamStep, AdamUpdate, SgdElements, SgdStep};

use crate::error::argument_error;

/// Numbers of Adam's step, in the order of [`AdamStep`].
type AdamNumbers = (bool, f32, f32, Option<f32>, f32, f32, f32, f32, f32, f32);
/// Numbers of SGD's step, in the order of [`SgdStep`].
type SgdNumbers = (bool, f32, Option<f32>, f32, f32, bool, f32);

/// An update by Adam, block by block.
#[pyclass(name = "AdamUpdate", module = "weft._weft")]
pub(crate) struct PyAdamUpdate(AdamUpdate);

#[pymethods]
impl PyAdamUpdate {
    #[new]
    fn new(
        py: Python<'_>,
        steps: Vec<AdamNumbers>,
        elements: Vec<(usize, usize, usize, usize, usize, usize)>,
        roots: usize,
        block: usize,
    ) -> PyResult<PyAdamUpdate> {
        if block == 0 || elements.iter().any(|one| one.0 >= steps.len()) {
            let steps = steps.len();
            let text = format!("blocks of {block} elements, and {steps} steps: expected more");
            return Err(argument_error(py, text));
        }
        let step = |numbers: AdamNumbers| {
            let (fused, sign, decay, gradient_decay, weight, squares_weight, ..) = numbers;
            let (.., square_weight, correction, epsilon, step_size) = numbers;
            AdamStep {
                fused,
                sign,
                decay,
                gradient_decay,
                weight,
                squares_weight,
                square_weight,
                correction,
                epsilon,
                step_size,
            }
        };
        let place = |(step, parameters, gradients, averages, squares, count)| {
            let elements = AdamElements {
                parameters: parameters as *mut f32,
                gradients: gradients as *const f32,
                averages: averages as *mut f32,
                squares: squares as *mut f32,
                count,
            };
            (step, elements)
        };
        Ok(PyAdamUpdate(AdamUpdate::new(
            steps.into_iter().map(step).collect(),
            elements.into_iter().map(place).collect(),
            roots as *mut f32,
            block,
        )))
    }

    /// Ends a block and begins the next one; returns how many squares it has left for the caller.
    fn advance(&mut self, py: Python<'_>) -> usize {
        // SAFETY: the caller keeps the memory, which does not overlap, and nobody else uses it.
        py.detach(|| unsafe { self.0.advance() })
    }
}

/// Updates elements by SGD.
#[pyfunction]
pub(crate) fn sgd_update(
    py: Python<'_>,
    step: SgdNumbers,
    elements: Vec<(usize, usize, usize, usize)>,
) {
    let (fused, sign, gradient_decay, momentum, undamped, nesterov, step_size) = step;
    let step = SgdStep {
        fused,
        sign,
        gradient_decay,
        momentum,
        undamped,
        nesterov,
        step_size,
    };
    py.detach(|| {
        for (parameters, gradients, momenta, count) in elements {
            let elements = SgdElements {
                parameters: parameters as *mut f32,
                gradients: gradients as *const f32,
                momenta: momenta as *mut f32,
                count,
            };
            // SAFETY: the caller keeps the memory, which does not overlap, and nobody else uses it.
            unsafe { step.update(&elements) };
        }
    });
}
