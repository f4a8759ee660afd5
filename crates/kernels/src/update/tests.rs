//! Updates against a loop over elements, cut in any way.

use super::{AdamElements, AdamStep, AdamUpdate, SgdElements, SgdStep};
use proptest::prelude::*;

fn numbers(count: usize) -> impl Strategy<Value = Vec<f32>> {
    prop::collection::vec(-3f32..3.0, count)
}

/// Tensors of some lengths, four vectors each: parameters, gradients, averages, squares.
fn tensors() -> impl Strategy<Value = Vec<[Vec<f32>; 4]>> {
    let one = (0usize..400).prop_flat_map(|count| {
        let each = || numbers(count);
        (each(), each(), each(), each()).prop_map(|(parameters, gradients, averages, squares)| {
            let squares = squares.into_iter().map(f32::abs).collect();
            [parameters, gradients, averages, squares]
        })
    });
    prop::collection::vec(one, 1..5)
}

fn multiply_add(fused: bool, a: f32, b: f32, c: f32) -> f32 {
    if fused { a.mul_add(b, c) } else { a * b + c }
}

fn adam_one(step: &AdamStep, values: [f32; 4]) -> [f32; 4] {
    let [parameter, gradient, average, square] = values;
    let mut gradient = gradient * step.sign;
    if let Some(decay) = step.gradient_decay {
        gradient = multiply_add(step.fused, decay, parameter, gradient);
    }
    let average = if step.weight < 0.5 {
        multiply_add(step.fused, step.weight, gradient - average, average)
    } else {
        multiply_add(step.fused, step.weight - 1.0, gradient - average, gradient)
    };
    let before = square * step.squares_weight;
    let square = multiply_add(step.fused, step.square_weight * gradient, gradient, before);
    let divisor = square.sqrt() / step.correction + step.epsilon;
    let parameter = parameter * step.decay + step.step_size * average / divisor;
    [parameter, values[1], average, square]
}

fn sgd_one(step: &SgdStep, values: [f32; 4]) -> [f32; 4] {
    let [parameter, gradient, momentum, other] = values;
    let mut gradient = gradient * step.sign;
    if let Some(decay) = step.gradient_decay {
        gradient = multiply_add(step.fused, decay, parameter, gradient);
    }
    let moved = multiply_add(
        step.fused,
        step.undamped,
        gradient,
        momentum * step.momentum,
    );
    if step.nesterov {
        gradient = multiply_add(step.fused, step.momentum, moved, gradient);
    } else {
        gradient = moved;
    }
    let parameter = multiply_add(step.fused, step.step_size, gradient, parameter);
    [parameter, values[1], moved, other]
}

/// Every element through the function.
fn each_one(
    tensors: &[[Vec<f32>; 4]],
    update: impl Fn(usize, [f32; 4]) -> [f32; 4],
) -> Vec<[Vec<f32>; 4]> {
    let mut updated = tensors.to_vec();
    for (number, tensor) in updated.iter_mut().enumerate() {
        for index in 0..tensor[0].len() {
            let after = update(number, std::array::from_fn(|which| tensor[which][index]));
            for (vector, value) in tensor.iter_mut().zip(after) {
                vector[index] = value;
            }
        }
    }
    updated
}

proptest! {
    #[test]
    fn adam_computes_its_formula(
        mut tensors in tensors(),
        fused: bool,
        maximize: bool,
        weight in prop::sample::select(vec![0.1f32, 0.7]),
        gradient_decay in prop::option::of(0.01f32..0.1),
        block in 1usize..1500,
    ) {
        let step = |number: usize| AdamStep {
            fused,
            sign: if maximize { -1.0 } else { 1.0 },
            decay: 1.0 - 0.01 * number as f32,
            gradient_decay,
            weight,
            squares_weight: 0.999,
            square_weight: 0.001,
            correction: 0.3,
            epsilon: 1e-8,
            step_size: -0.001,
        };
        let steps: Vec<_> = (0..tensors.len()).map(step).collect();
        let expected = each_one(&tensors, |number, values| adam_one(&steps[number], values));
        let elements = |(number, tensor): (usize, &mut [Vec<f32>; 4])| {
            let [parameters, gradients, averages, squares] = tensor;
            let (parameters, gradients) = (parameters.as_mut_ptr(), gradients.as_ptr());
            let (averages, squares) = (averages.as_mut_ptr(), squares.as_mut_ptr());
            let count = tensor[0].len();
            (number, AdamElements { parameters, gradients, averages, squares, count })
        };
        let elements = tensors.iter_mut().enumerate().map(elements).collect();
        let mut roots = vec![0f32; block];
        let memory = roots.as_mut_ptr();
        let mut update = AdamUpdate::new(steps, elements, memory, block);
        loop {
            // SAFETY: the vectors are apart, and used by nobody else.
            let count = unsafe { update.advance() };
            if count == 0 {
                break;
            }
            roots[..count].iter_mut().for_each(|root| *root = root.sqrt());
        }
        prop_assert_eq!(tensors, expected);
    }

    #[test]
    fn sgd_computes_its_formula(
        mut tensors in tensors(),
        fused: bool,
        nesterov: bool,
        gradient_decay in prop::option::of(0.01f32..0.1),
        momentum in 0.5f32..1.0,
    ) {
        let step = |number: usize| SgdStep {
            fused,
            sign: 1.0,
            gradient_decay,
            momentum,
            undamped: 0.9,
            nesterov,
            step_size: -0.1 - number as f32,
        };
        let steps: Vec<_> = (0..tensors.len()).map(step).collect();
        let expected = each_one(&tensors, |number, values| sgd_one(&steps[number], values));
        for (step, tensor) in steps.iter().zip(&mut tensors) {
            let [parameters, gradients, momenta, _] = tensor;
            let count = parameters.len();
            let (parameters, gradients) = (parameters.as_mut_ptr(), gradients.as_ptr());
            let momenta = momenta.as_mut_ptr();
            let elements = SgdElements { parameters, gradients, momenta, count };
            // SAFETY: the vectors are apart, and used by nobody else.
            unsafe { step.update(&elements) };
        }
        prop_assert_eq!(tensors, expected);
    }
}
