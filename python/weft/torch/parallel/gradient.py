"""Parameters whose `grad` and `data` wait.

What is read of `grad` is averaged over all ranks, of `data` it has the last step's update.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

__all__ = ["GradientOwner", "guard", "raw_gradient", "set_raw_gradient", "unguard"]

_GRADIENT: Any = torch.Tensor.grad
_DATA: Any = torch.Tensor.data


Slot = TypeVar("Slot")
"""What the owner knows a parameter by."""
_Slot = TypeVar("_Slot", contravariant=True)


class GradientOwner(Protocol[_Slot]):
    """Who knows what must happen before somebody touches a parameter or its gradient."""

    def before_use(self, slot: _Slot) -> None:
        """Called before values are read or replaced, by `data`, a copy or a pickle."""

    def before_read(self, slot: _Slot) -> None:
        """Called before `grad` is read."""

    def before_write(self, slot: _Slot) -> None:
        """Called before `grad` is set or deleted."""


# Called for every parameter in every step, so without a frame of Python's.
raw_gradient: Callable[[Tensor], Tensor | None] = _GRADIENT.__get__
"""The gradient as it is now, without waiting."""
set_raw_gradient: Callable[[Tensor, Tensor | None], None] = _GRADIENT.__set__
"""Sets the gradient, and notifies nobody."""


def guard(parameter: nn.Parameter, slot: Slot, owner: GradientOwner[Slot]) -> None:
    """Lets the parameter's `grad` and `data` wait.

    Its class changes: autograd and optimized code, which go past Python, see the same tensor.
    """
    if not isinstance(parameter, _Guard):
        parameter.__class__ = _guarded(type(parameter))
    parameter._weft_slot = slot  # type: ignore[attr-defined]
    parameter._weft_owner = owner  # type: ignore[attr-defined]


def unguard(parameter: nn.Parameter) -> None:
    """Makes of a guarded parameter what it was before."""
    if isinstance(parameter, _Guard):
        parameter.__class__ = type(parameter).__mro__[2]
        del parameter._weft_slot, parameter._weft_owner


class _Guard:
    """What guarded parameters have before their own class. Copies and pickles are not guarded."""

    _weft_slot: Any
    _weft_owner: GradientOwner[Any]

    @property
    def grad(self) -> Tensor | None:
        self._weft_owner.before_read(self._weft_slot)
        gradient: Tensor | None = _GRADIENT.__get__(self)
        return gradient

    @grad.setter
    def grad(self, gradient: Tensor | None) -> None:
        self._weft_owner.before_write(self._weft_slot)
        _GRADIENT.__set__(self, gradient)

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    @property
    def data(self) -> Tensor:
        self._weft_owner.before_use(self._weft_slot)
        values: Tensor = _DATA.__get__(self)
        return values

    @data.setter
    def data(self, values: Tensor) -> None:
        self._weft_owner.before_use(self._weft_slot)
        _DATA.__set__(self, values)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            self._weft_owner.before_use(self._weft_slot)
            copy = self.detach().clone(memory_format=torch.preserve_format)  # type: ignore[attr-defined]
            memo[id(self)] = _plain(self, copy)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        self._weft_owner.before_use(self._weft_slot)
        return _plain(self, self.detach()).__reduce_ex__(protocol)  # type: ignore[attr-defined]


@functools.cache
def _guarded(kind: type) -> type:
    return type(f"Guarded{kind.__name__}", (_Guard, kind), {"__module__": __name__})


def _plain(guarded: Any, values: Tensor) -> Any:
    """A parameter of the class that the guarded one had."""
    return type(guarded).__mro__[2](values, guarded.requires_grad)
