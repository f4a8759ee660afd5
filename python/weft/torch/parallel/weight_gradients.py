"""Gradients of large linear layers, computed in the memory of their bucket.

Autograd makes each gradient in new memory, which the kernel must clear page by page, and from which
it is copied into its bucket. For a large matrix this takes as long as the product itself. A layer's
output gets another node of the graph, which computes the same products, and the weight's straight
into the bucket, if nothing is there yet that it must be added to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from weft.torch.parallel.first_use import Hook
from weft.torch.patches.autograd import accumulates, in_transform, linear_weight
from weft.torch.patches.modes import in_dispatch_mode, outside_of_function_modes, outside_of_modes
from weft.torch.patches.modules import sees_output_of_class

if TYPE_CHECKING:
    from weft.torch.parallel.reducer import Reducer

__all__ = ["compute_in_bucket"]

BYTES_MIN = 1 << 20
"""For smaller gradients another node takes as long as it saves."""


@outside_of_modes
def compute_in_bucket(module: nn.Module, reducer: Reducer) -> Callable[[], None] | None:
    """Makes a layer's backward compute its weight's gradient in the reducer's memory.

    Returns:
        A function that undoes it; None if this is not a large linear layer.
    """
    if not isinstance(module, nn.Linear) or type(module).forward is not nn.Linear.forward:
        return None
    weight = dict.get(module._parameters, "weight")
    if weight is None or weight.nbytes < BYTES_MIN or not weight.is_contiguous():
        return None
    remove: Callable[[], None] = module.register_forward_hook(_Replace(reducer), prepend=True).remove
    return remove


class _Replace(Hook):
    """A forward hook that gives an output its other node."""

    def __init__(self, reducer: Reducer) -> None:
        self._reducer = reducer

    def __call__(self, module: nn.Module, arguments: tuple[Any, ...], output: Any) -> Tensor | None:
        if torch.compiler.is_compiling() or len(arguments) != 1 or type(output) is not Tensor:
            return None
        if not sees_output_of_class(module, self):
            return None
        return self._replaced(module, arguments[0], output)

    @outside_of_function_modes
    def _replaced(self, module: nn.Module, inputs: Tensor, output: Tensor) -> Tensor | None:
        weight = dict.get(module._parameters, "weight")
        if self._reducer.slot_of(weight) is None or in_dispatch_mode() or in_transform():
            return None
        if not inputs.is_contiguous() or linear_weight(output) is not weight:
            return None
        bias = dict.get(module._parameters, "bias")
        result: Tensor = _Linear.apply(self._reducer, (output,), inputs, weight, bias)
        return result


class _Linear(torch.autograd.Function):
    """`torch.nn.functional.linear`, whose output is known, with torch's formulas for gradients."""

    @staticmethod
    def forward(
        ctx: Any, reducer: Reducer, output: tuple[Tensor], inputs: Tensor, weight: Tensor, _: Tensor | None
    ) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.reducer = reducer
        ctx.save_for_backward(inputs, weight)
        return output[0].detach()

    @staticmethod
    @outside_of_function_modes
    def backward(ctx: Any, gradient: Tensor | None) -> tuple[Any, ...]:
        if gradient is None:
            return (None,) * 5
        inputs, weight = ctx.saved_tensors
        *_, of_inputs, of_weight, of_bias = ctx.needs_input_grad
        rows = gradient.reshape(-1, weight.shape[0])
        found: list[Tensor | None] = [None, None, None]
        if of_inputs:
            found[0] = rows.mm(weight).view(inputs.shape)
        if of_weight:
            found[1] = _weight_gradient(ctx, rows, inputs.view(-1, weight.shape[1]), weight)
        if of_bias:
            found[2] = rows  # autograd adds the rows
        return None, None, *found


def _weight_gradient(ctx: Any, rows: Tensor, inputs: Tensor, weight: Tensor) -> Tensor:
    place: Tensor | None = None
    if not torch.is_grad_enabled() and not in_dispatch_mode() and accumulates(ctx, weight):
        place = ctx.reducer.place_for(weight, rows.dtype)
    if place is None:
        return rows.t().mm(inputs)
    torch.mm(rows.t(), inputs, out=place)
    return place.view(place.shape)  # autograd keeps a tensor that nobody else has, without a copy
