"""The caller's torch modes, which weft's own work neither uses nor changes.

[Note: The caller's modes] `torch.set_default_device`, `with torch.device(...)`, a
`TorchFunctionMode` and a `TorchDispatchMode` apply to every call of torch on the thread, also to
weft's calls that copy and inspect tensors. Under the default device "meta" or "cuda", a copy would
be in memory that the operation cannot read. So weft does its own work on a caller's thread outside
of the modes: the methods that torch and users call are `outside_of_modes`. The user's code (the
model's forward, hooks) is called inside.

The default dtype applies to all threads, so weft cannot leave it: each tensor that weft makes names
its type, and its device (`tests/unit/test_torch_factories.py`).

torch 2.11 and newer: there are no public functions for it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

import torch
from torch.utils._python_dispatch import _disable_current_modes

__all__ = ["in_dispatch_mode", "in_function_mode", "no_modes", "outside_of_function_modes", "outside_of_modes"]

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

in_function_mode: Callable[[], bool] = torch._C._is_torch_function_mode_enabled
"""Whether this thread is within a function mode; a default device is one."""
in_dispatch_mode: Callable[[], int] = torch._C._len_torch_dispatch_stack
"""How many dispatch modes this thread is in."""


@contextlib.contextmanager
def no_modes() -> Iterator[None]:
    """Leaves the caller's modes for the block: see [Note: The caller's modes]."""
    dispatching = _disable_current_modes() if in_dispatch_mode() else contextlib.nullcontext()
    with torch._C.DisableTorchFunction(), dispatching:
        yield


def outside_of_modes(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """The function, run outside of its caller's modes: see [Note: The caller's modes]."""

    @functools.wraps(function)
    def wrapper(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        if in_function_mode() or in_dispatch_mode():
            with no_modes():
                return function(*arguments, **named)
        return function(*arguments, **named)

    return wrapper


def outside_of_function_modes(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """The function, whose operations only dispatch modes see, as those of autograd."""

    @functools.wraps(function)
    def wrapper(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        if in_function_mode():
            with torch._C.DisableTorchFunction():
                return function(*arguments, **named)
        return function(*arguments, **named)

    return wrapper
