"""What data parallelism needs to know of a user's model: trained parameters, tensors of outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from weft.errors import ArgumentError, UnsupportedError
from weft.torch.parallel.first_use import is_watched

__all__ = ["tensors_in", "trained_parameters"]


def trained_parameters(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """The parameters that require a gradient, by name.

    Raises:
        weft.ArgumentError: There are none, or the model is in a `DataParallel` already.
        weft.UnsupportedError: One is not an initialized one on the CPU.
    """
    if is_watched(module):
        raise ArgumentError("the model is in a DataParallel already: call unwrap() of that one first")
    trained = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
    if not trained:
        raise ArgumentError("the model has no parameter that requires a gradient")
    for name, parameter in trained:
        if nn.parameter.is_lazy(parameter):
            raise UnsupportedError(f"{name} is not initialized: run the model once before DataParallel")
        if not parameter.is_cpu or parameter.layout is not torch.strided:
            raise UnsupportedError(f"{name} is on {parameter.device} ({parameter.layout}): expected a CPU tensor")
    return trained


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors in what a model returns: in lists, tuples, sets, dicts and dataclasses."""
    if isinstance(value, Tensor):
        yield value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors_in(getattr(value, field.name))
    elif isinstance(value, dict):
        for one in value.values():
            yield from tensors_in(one)
    elif isinstance(value, (list, tuple, set)):
        for one in value:
            yield from tensors_in(one)
