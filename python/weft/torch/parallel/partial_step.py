"""Steps of an optimizer on some of its parameters, with the hyperparameters of an earlier moment.

The optimizer itself is used, with fewer parameters in its groups during the step, or weft's kernels
with its bits: its state stays unmoved, and `foreach` and `fused` are as the user chose. For an
optimizer that updates each parameter separately, the results are the bits of a step on all
parameters.
"""

from __future__ import annotations

import contextlib
import copy
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.optim import Optimizer

from weft.torch.parallel.announced import announced
from weft.torch.parallel.buckets import Slot
from weft.torch.parallel.cache_blocking import in_blocks
from weft.torch.parallel.context import outside_of_everything
from weft.torch.parallel.gradient import raw_gradient, set_raw_gradient
from weft.torch.parallel.late_changes import Noted
from weft.torch.parallel.native_updates import update_natively
from weft.torch.parallel.watched_groups import plain_groups
from weft.torch.patches.optimizers import without_step_hooks

__all__ = ["PartialStep", "StepSettings", "groups_differ", "handing_over", "step_on"]

_SCALER_ATTRIBUTES = ("grad_scale", "found_inf")
"""Attributes that GradScaler sets on optimizers that unscale gradients themselves, in a step."""


class StepSettings:
    """The settings of a step: hyperparameters of the groups, and GradScaler's attributes."""

    def __init__(self, optimizer: Optimizer, handed_over: dict[str, Any]) -> None:
        """`handed_over` are attributes that were set for this step only."""
        self.groups = [
            {name: _copied(value) for name, value in group.items() if name != "params"}
            for group in plain_groups(optimizer)
        ]
        self.handed_over = {name: _copied(value) for name, value in handed_over.items()}

    @staticmethod
    def handed_to(wrapper: object) -> dict[str, Any]:
        """The attributes that GradScaler has set on an optimizer."""
        return {name: getattr(wrapper, name) for name in _SCALER_ATTRIBUTES if name in vars(wrapper)}


class PartialStep:
    """A pending update of some parameters."""

    def __init__(self, optimizer: Optimizer, members: Sequence[tuple[int, Slot]], settings: StepSettings) -> None:
        """`members` are slots with the numbers of their groups; their gradients were taken."""
        self._optimizer = optimizer
        self._members = members
        self._settings = settings
        self._noted = Noted(list(map(operator.itemgetter(1), members)), optimizer)

    def check(self) -> None:
        """Raises `weft.UnsupportedError` if its inputs have changed: see [Note: Late changes]."""
        self._noted.check()

    def wait(self) -> None:
        """Returns at once: the caller carries out all of it."""

    def __call__(self) -> None:
        """Steps, and gives the gradients back to the parameters that must keep them."""
        since = [raw_gradient(slot.parameter) for _, slot in self._members]
        for _, slot in self._members:
            set_raw_gradient(slot.parameter, slot.taken_gradient)
        parameters, groups = [slot.parameter for _, slot in self._members], self._groups()
        try:
            with outside_of_everything(), announced(self._optimizer, parameters, groups):
                step_on(self._optimizer, groups, self._settings.handed_over)
        finally:
            for (_, slot), gradient in zip(self._members, since, strict=True):
                slot.end_update(gradient)

    def _groups(self) -> list[dict[str, Any]]:
        groups: dict[int, dict[str, Any]] = {}
        for number, slot in self._members:
            if slot.taken_gradient is not None:
                group = groups.setdefault(number, {**self._settings.groups[number], "params": []})
                group["params"].append(slot.parameter)
        return list(groups.values())


def step_on(optimizer: Optimizer, groups: list[dict[str, Any]], handed_over: Mapping[str, Any]) -> None:
    """A step of an optimizer on these groups in place of its own, without hooks.

    `handed_over` are attributes that are set on the optimizer for this step only.
    """
    if rest := update_natively(optimizer, groups, handed_over):
        with in_blocks(optimizer, rest) as cut, _restricted(optimizer, cut, handed_over):
            optimizer.step()


@contextlib.contextmanager
def _restricted(optimizer: Optimizer, groups: list[dict[str, Any]], handed_over: Mapping[str, Any]) -> Iterator[None]:
    """The optimizer with these groups, and without hooks, which are for whole steps."""
    whole = optimizer.param_groups
    optimizer.param_groups = groups
    try:
        with handing_over(optimizer, handed_over), without_step_hooks(optimizer):
            yield
    finally:
        optimizer.param_groups = whole


@contextlib.contextmanager
def handing_over(optimizer: Optimizer, attributes: Mapping[str, Any]) -> Iterator[None]:
    """Sets GradScaler's attributes on an optimizer for one step."""
    vars(optimizer).update(attributes)
    try:
        yield
    finally:
        for name in attributes:
            vars(optimizer).pop(name, None)


def groups_differ(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> bool:
    """Whether `StepSettings.groups` of two moments differ."""
    for one, other in zip(before, after, strict=True):
        if one.keys() != other.keys():
            return True
        for name, value in one.items():
            same = torch.equal(value, other[name]) if isinstance(value, torch.Tensor) else value == other[name]
            if not same:
                return True
    return False


def _copied(value: Any) -> Any:
    """The present value: a copy, if it can be changed in place."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    return copy.deepcopy(value) if isinstance(value, (list, dict, set)) else value
