"""Access to the hooks of optimizers: calling them separately, and steps without them.

torch 2.11 and newer: there are no public functions for it.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any

from torch.optim import Optimizer
from torch.optim import optimizer as torch_optimizer

from weft.errors import UnsupportedError

__all__ = [
    "bare_copy",
    "begin_as_wrapper",
    "call_step_post_hooks",
    "call_step_pre_hooks",
    "has_global_step_hooks",
    "has_step_post_hooks",
    "note_step",
    "step_function",
    "without_step_hooks",
]


def begin_as_wrapper(optimizer: Optimizer) -> None:
    """Makes the attributes of an `Optimizer` that has parameters and state of another one."""
    Optimizer.__setstate__(optimizer, {})


def bare_copy(optimizer: Optimizer) -> Any:
    """Another object with the same attributes, the values not copied, and without hooks.

    Methods that were set on the object are the copy's own.

    Raises:
        weft.UnsupportedError: Its `step` is a function that may belong to this object only.
    """
    if step_function(optimizer) is None:
        raise UnsupportedError(
            f"the step of this {type(optimizer).__name__} was replaced by {vars(optimizer)['step']!r}, which may be "
            "for this object only: expected torch's, or that of a subclass"
        )
    copy = object.__new__(type(optimizer))
    vars(copy).update({name: _rebound(value, optimizer, copy) for name, value in vars(optimizer).items()})
    copy._optimizer_step_pre_hooks, copy._optimizer_step_post_hooks = OrderedDict(), OrderedDict()
    return copy


def _rebound(value: Any, optimizer: Optimizer, copy: Optimizer) -> Any:
    """A bound method of an optimizer as one of its copy; other values as they are.

    Schedulers replace `step` by a function that notes the call, and steps the optimizer for which
    they were made.
    """
    if isinstance(value, MethodType) and value.__self__ is optimizer:
        return MethodType(value.__func__, copy)
    if hasattr(value, "_wrapped_by_lr_sched"):
        return MethodType(value.__wrapped__, copy)
    return value


def step_function(optimizer: Optimizer) -> Callable[..., Any] | None:
    """The function that its `step` calls with it; None if it may be for this object only."""
    if "step" not in vars(optimizer):
        return type(optimizer).step
    step = vars(optimizer)["step"]
    if isinstance(step, MethodType) and step.__self__ is optimizer:
        return step.__func__
    return step.__wrapped__ if hasattr(step, "_wrapped_by_lr_sched") else None


def has_global_step_hooks() -> bool:
    """Whether the steps of all optimizers have hooks."""
    return bool(torch_optimizer._global_optimizer_pre_hooks or torch_optimizer._global_optimizer_post_hooks)


def note_step(optimizer: Optimizer) -> None:
    """Says to schedulers that there was a step: otherwise the first one to come warns of none."""
    optimizer._opt_called = True  # type: ignore[attr-defined]


def has_step_post_hooks(optimizer: Optimizer) -> bool:
    """Whether it has hooks after its steps."""
    return bool(optimizer._optimizer_step_post_hooks)


def call_step_pre_hooks(optimizer: Optimizer) -> None:
    """Calls the hooks before a step without arguments."""
    for hook in optimizer._optimizer_step_pre_hooks.values():
        hook(optimizer, (), {})


def call_step_post_hooks(optimizer: Optimizer) -> None:
    """Calls the hooks after a step without arguments."""
    for hook in optimizer._optimizer_step_post_hooks.values():
        hook(optimizer, (), {})


@contextlib.contextmanager
def without_step_hooks(optimizer: Optimizer) -> Iterator[None]:
    """Makes steps within the block call no hooks of this optimizer."""
    hooks = optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks
    none: tuple[Any, Any] = OrderedDict(), OrderedDict()
    optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks = none
    try:
        yield
    finally:
        optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks = hooks
