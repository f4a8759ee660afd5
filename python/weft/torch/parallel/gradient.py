"""Parameters whose `grad` and `data` wait for pending work.

Reading `grad` waits for the average over all ranks, reading `data` for the last step's update.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

__all__ = ["GradientOwner", "guard", "plain_type", "raw_gradient", "set_raw_gradient", "unguard"]

_GRADIENT: Any = torch.Tensor.grad
_DATA: Any = torch.Tensor.data


Key = TypeVar("Key")
"""The owner's key of a parameter: a `Reducer` uses its `Slot`."""
_Key = TypeVar("_Key", contravariant=True)


class GradientOwner(Protocol[_Key]):
    """The owner, which is called before a parameter or its gradient is accessed."""

    def before_use(self, key: _Key, /) -> None:
        """Called before values are read or replaced, by `data`, a copy or a pickle."""

    def before_read(self, key: _Key, /) -> None:
        """Called before `grad` is read."""

    def before_write(self, key: _Key, /) -> None:
        """Called before `grad` is set or deleted."""


# Called for every parameter in every step, so without a Python frame.
raw_gradient: Callable[[Tensor], Tensor | None] = _GRADIENT.__get__
"""The present gradient, without waiting."""
set_raw_gradient: Callable[[Tensor, Tensor | None], None] = _GRADIENT.__set__
"""Sets the gradient without calling the owner."""


def guard(parameter: nn.Parameter, key: Key, owner: GradientOwner[Key]) -> None:
    """Makes the parameter's `grad` and `data` wait.

    Its class changes: autograd and optimized code, which bypass Python, see the same tensor.
    """
    if not isinstance(parameter, _Guard):
        parameter.__class__ = _guarded(type(parameter))
    parameter._weft_key = key  # type: ignore[attr-defined]
    parameter._weft_owner = owner  # type: ignore[attr-defined]


def unguard(parameter: nn.Parameter) -> None:
    """Restores a guarded parameter."""
    if isinstance(parameter, _Guard):
        parameter.__class__ = plain_type(parameter)
        del parameter._weft_key, parameter._weft_owner


def plain_type(parameter: Tensor) -> type:
    """The class of a parameter, or the one that it had before it was guarded."""
    return type(parameter).__mro__[2] if isinstance(parameter, _Guard) else type(parameter)


class _Guard:
    """The methods of guarded parameters before those of their class. Copies are not guarded."""

    _weft_key: Any
    _weft_owner: GradientOwner[Any]

    @property
    def grad(self) -> Tensor | None:
        self._weft_owner.before_read(self._weft_key)
        gradient: Tensor | None = _GRADIENT.__get__(self)
        return gradient

    @grad.setter
    def grad(self, gradient: Tensor | None) -> None:
        self._weft_owner.before_write(self._weft_key)
        _GRADIENT.__set__(self, gradient)

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    @property
    def data(self) -> Tensor:
        self._weft_owner.before_use(self._weft_key)
        values: Tensor = _DATA.__get__(self)
        return values

    @data.setter
    def data(self, values: Tensor) -> None:
        self._weft_owner.before_use(self._weft_key)
        _DATA.__set__(self, values)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            self._weft_owner.before_use(self._weft_key)
            copy = self.detach().clone(memory_format=torch.preserve_format)  # type: ignore[attr-defined]
            memo[id(self)] = _plain(self, copy)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        self._weft_owner.before_use(self._weft_key)
        return _plain(self, self.detach()).__reduce_ex__(protocol)  # type: ignore[attr-defined]


@functools.cache
def _guarded(kind: type) -> type:
    return type(f"Guarded{kind.__name__}", (_Guard, kind), {"__module__": __name__})


def _plain(guarded: Any, values: Tensor) -> Any:
    """A parameter of the class that the guarded one had."""
    return plain_type(guarded)(values, guarded.requires_grad)
