"""Steps of an optimizer block by block, so that what it reads several times is still in the cache.

torch's plain optimizers make several passes over each tensor (AdamW: about ten). In large tensors
every pass reads from memory; in blocks of a few megabytes only the first one does. Elementwise
optimizers compute the same bits in blocks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from weft.torch.parallel.gradient import raw_gradient
from weft.torch.parallel.optimizer_kinds import is_elementwise

__all__ = ["in_blocks", "is_per_element"]

BLOCK_ELEMENTS = 128 << 10
"""Smaller ones are calls too short for their overhead; larger ones miss the cache where several
ranks share it.
"""
_NOT_CUT = ("fused", "foreach", "capturable", "differentiable")
"""Options of groups whose implementations would not gain: most go through a tensor once, or through
all tensors in turn.
"""


def is_per_element(value: Any, parameter: Tensor) -> bool:
    """Whether a value of a parameter's state has one element for each of the parameter's."""
    return isinstance(value, Tensor) and value.dim() > 0 and value.shape == parameter.shape


@contextlib.contextmanager
def in_blocks(optimizer: Optimizer, groups: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Gives groups with blocks of large parameters in place of these, for one step.

    Afterwards the parameters have the state that their blocks had.
    """
    cut: list[_Blocks] = []
    try:
        yield [{**group, "params": list(_cut(optimizer, group, cut))} for group in groups]
    finally:
        for blocks in cut:
            blocks.end(optimizer)


def _cut(optimizer: Optimizer, group: dict[str, Any], cut: list[_Blocks]) -> Iterator[Tensor]:
    elementwise = is_elementwise(optimizer) and not any(group.get(option) for option in _NOT_CUT)
    for parameter in group["params"]:
        if elementwise and _can_be_cut(parameter, optimizer.state.get(parameter, {})):
            cut.append(_Blocks(optimizer, parameter))
            yield from cut[-1].blocks
        else:
            yield parameter


def _can_be_cut(parameter: Tensor, state: dict[str, Any]) -> bool:
    if parameter.numel() <= BLOCK_ELEMENTS:
        return False
    gradient = raw_gradient(parameter)
    if gradient is None or gradient.layout is not torch.strided:
        return False
    like = (one for one in state.values() if is_per_element(one, parameter))
    return all(one.is_cpu and one.is_contiguous() for one in (parameter, gradient, *like))


class _Blocks:
    """A parameter in blocks, each with its part of the state."""

    def __init__(self, optimizer: Optimizer, parameter: Tensor) -> None:
        gradient = raw_gradient(parameter)
        assert gradient is not None, "it can be cut"
        self._parameter = parameter
        self.blocks = _parts(parameter)
        for block, part in zip(self.blocks, _parts(gradient), strict=True):
            block.grad = part
        whole = optimizer.state.get(parameter, {})
        self._given: list[dict[str, Any]] = [{} for _ in self.blocks]
        for name, value in whole.items():
            each = _parts(value) if is_per_element(value, parameter) else [_copied(value) for _ in self.blocks]
            for given, part in zip(self._given, each, strict=True):
                given[name] = part
        if whole:
            for block, given in zip(self.blocks, self._given, strict=True):
                optimizer.state[block] = dict(given)

    def end(self, optimizer: Optimizer) -> None:
        """Gives the parameter the state of its blocks."""
        after = [optimizer.state.pop(block, {}) for block in self.blocks]
        torch.autograd.graph.increment_version(self._parameter)
        whole = optimizer.state[self._parameter] if any(after) else {}
        for name in after[-1]:
            values = [state.get(name) for state in after]
            if name in whole and is_per_element(whole[name], self._parameter):
                for value, given in zip(values, self._given, strict=True):
                    if value is not given[name]:
                        given[name].copy_(value)
            elif is_per_element(values[-1], self.blocks[-1]):
                whole[name] = torch.cat(values).view(self._parameter.shape)
            elif isinstance(values[-1], Tensor) and name in whole:
                whole[name].copy_(values[-1])
            else:
                whole[name] = values[-1]


def _parts(tensor: Tensor) -> list[Tensor]:
    return list(torch.split(tensor.detach().as_subclass(Tensor).view(-1), BLOCK_ELEMENTS))


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value
