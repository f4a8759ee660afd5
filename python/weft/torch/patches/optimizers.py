"""Access to the hooks of optimizers: calling them separately, and steps without them.

torch 2.11 and newer: there are no public functions for it.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from torch.optim import Optimizer

__all__ = [
    "bare_copy",
    "begin_as_wrapper",
    "call_step_post_hooks",
    "call_step_pre_hooks",
    "has_step_post_hooks",
    "without_step_hooks",
]


def begin_as_wrapper(optimizer: Optimizer) -> None:
    """Makes the attributes of an `Optimizer` that has parameters and state of another one."""
    Optimizer.__setstate__(optimizer, {})


def bare_copy(optimizer: Optimizer) -> Any:
    """Another object with the same attributes, the values not copied, and without hooks."""
    copy = object.__new__(type(optimizer))
    vars(copy).update(vars(optimizer))
    copy._optimizer_step_pre_hooks, copy._optimizer_step_post_hooks = OrderedDict(), OrderedDict()
    return copy


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
