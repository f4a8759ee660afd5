"""Copies of the state of training: models, optimizers, random numbers, objects with `state_dict`.

A copy is taken repeatedly into the same memory. Where parameters are copied late (see [Note: Late
copies]), `take_rest` copies the rest into memory of its own, which `promote` makes the copy's.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Mapping, Set
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from weft.errors import ArgumentError, UnsupportedError
from weft.torch.parallel.data_parallel import DataParallel
from weft.torch.parallel.divided.optimizer import DividedOptimizer
from weft.torch.parallel.introduction import note_restored
from weft.torch.parallel.overlapped import Overlapped
from weft.torch.parallel.virtual.continued import continue_parts, state_of_parts
from weft.torch.parallel.watched_groups import plain_groups, plain_parameters
from weft.torch.recovery.shares import Shares

__all__ = ["Copy", "OptimizerCopy", "RandomNumbers", "copy_of"]


class Copy(Protocol):
    """The state of an object when `take` was last called."""

    def take(self) -> None:
        """Copies the present state."""

    def take_rest(self, covered: Set[int]) -> None:
        """Copies the present state but for covered parameters, by `id`; the copy stays."""

    def promote(self) -> None:
        """Makes what `take_rest` has copied a part of the copy."""

    def save(self, parameter: Tensor) -> None:
        """Copies a covered parameter, and what is kept with it."""

    def put_back(self) -> None:
        """Restores the state. The copy stays."""

    def content(self) -> Any:
        """The copied state, as a rank that has none can take it; None if ranks have their own."""

    def replace(self, content: Any, /) -> None:
        """Takes another rank's content as the copied state."""

    @property
    def nbytes(self) -> int:
        """The bytes of the tensors in the copy."""


def copy_of(part: Any) -> Copy:
    """A copy, not yet taken, of a part of the training.

    Raises:
        weft.ArgumentError: It is wrapped for a group that a death breaks, or has no state.
        weft.UnsupportedError: It is a model of which each rank has only a part.
    """
    if isinstance(part, (DataParallel, DistributedDataParallel, Overlapped)):
        inner = "optimizer" if isinstance(part, Overlapped) else "module"
        raise ArgumentError(
            f"{type(part).__name__} is not allowed: its group ends with a death. Pass the plain {inner}, and wrap it "
            "in the function that Recovery.run calls"
        )
    if isinstance(part, nn.Module):
        return _ModuleCopy(part)
    if isinstance(part, Optimizer):
        return OptimizerCopy(part)
    if callable(getattr(part, "state_dict", None)) and callable(getattr(part, "load_state_dict", None)):
        return _StateCopy(part)
    raise ArgumentError(f"a {type(part).__name__} is not allowed: expected an object with state_dict, load_state_dict")


class _ModuleCopy:
    """Parameters and buffers, also those in no `state_dict`. Gradients are dropped."""

    def __init__(self, module: nn.Module) -> None:
        for name, parameter in module.named_parameters():
            if isinstance(parameter, DTensor):
                raise UnsupportedError(
                    f"{name} is sharded: a rank that dies takes its part with it. Save checkpoints, and start again"
                )
        self._module = module
        self._state: dict[str, Any] = {}
        self._others: dict[str, Any] = {}
        self._named: dict[str, nn.Parameter] = {}
        self._trained: dict[str, bool] = {}
        """Which parameters require a gradient: no `state_dict` has this, and programs change it."""
        self._parts: dict[str, Any] | None = None
        """The state of a step in parts, by virtual ranks, if there are any."""
        self._rest: tuple[dict[str, Any], ...] = {}, {}, {}
        """The state without covered parameters, the other buffers, and which are trained."""
        self._rest_parts: dict[str, Any] | None = None
        self._names: dict[int, list[str]] = {}
        """The names of covered parameters."""

    def take(self) -> None:
        self._parts = state_of_parts(self._module)
        state = self._module.state_dict()
        self._state = _kept(self._state, state)
        self._others = _kept(self._others, self._buffers_beside(state))
        self._named = dict(self._module.named_parameters())
        self._trained = self._which_are_trained()

    def take_rest(self, covered: Set[int]) -> None:
        state = self._module.state_dict(keep_vars=True)
        self._names = {}
        for name, value in state.items():
            if id(value) in covered:
                self._names.setdefault(id(value), []).append(name)
        rest = {name: value for name, value in state.items() if id(value) not in covered}
        before, others, _ = self._rest
        self._rest = _kept(before, rest), _kept(others, self._buffers_beside(state)), self._which_are_trained()
        self._rest_parts = state_of_parts(self._module)

    def promote(self) -> None:
        rest, others, self._trained = self._rest
        self._rest = {name: self._state.get(name) for name in rest}, self._others, {}
        self._state.update(rest)
        self._others, self._parts = others, self._rest_parts

    def save(self, parameter: Tensor) -> None:
        for name in self._names.get(id(parameter), ()):
            self._state[name] = _kept(self._state.get(name), parameter)

    def _buffers_beside(self, state: Mapping[str, Any]) -> dict[str, Tensor]:
        return {name: buffer for name, buffer in self._module.named_buffers() if name not in state}

    def _which_are_trained(self) -> dict[str, bool]:
        return {name: parameter.requires_grad for name, parameter in self._named.items()}

    def put_back(self) -> None:
        self._module.load_state_dict(self._state)
        buffers = dict(self._module.named_buffers())
        with torch.no_grad():
            for name, value in self._others.items():
                buffers[name].copy_(value)
        for name, parameter in self._module.named_parameters():
            parameter.requires_grad_(self._trained.get(name, parameter.requires_grad))
            parameter.grad = None
        continue_parts(self._module, self._parts)
        note_restored(self._module)

    def content(self) -> Any:
        return self._state, self._others, self._trained, self._parts

    def replace(self, content: Any) -> None:
        self._state, self._others, self._trained, self._parts = content

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in _tensors([self._state, self._others, *self._rest]))


class _StateCopy:
    """The result of `state_dict`."""

    def __init__(self, part: Any) -> None:
        self._part = part
        self._state: Any = None
        self._rest: Any = None

    def take(self) -> None:
        self._state = _kept(self._state, self._part.state_dict())

    def take_rest(self, _covered: Set[int]) -> None:
        self._rest = _kept(self._rest, self._part.state_dict())

    def promote(self) -> None:
        self._state, self._rest = self._rest, self._state

    def save(self, _parameter: Tensor) -> None:
        """Nothing: no parameter is covered here."""

    def put_back(self) -> None:
        self._part.load_state_dict(_kept(None, self._state))  # otherwise it would train on the copy

    def content(self) -> Any:
        return self._state

    def replace(self, content: Any) -> None:
        self._state = content

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in _tensors(self._state))


class OptimizerCopy:
    """The result of `state_dict`; of divided updates, what all ranks have, and kept shares."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.shares = Shares(optimizer)
        self._state: Any = None
        self._prepared: Any = None
        self._rest: list[dict[str, Any]] = []
        """The groups."""
        self._places: dict[int, int] = {}
        """The places of parameters in torch's `state_dict`."""

    def prepare(self, divided: DividedOptimizer | None) -> None:
        """Copies divided state, before a commit, and sends it: see `Shares.prepare`."""
        self.shares.prepare(divided)
        if divided is not None:
            with divided.incomplete():
                self._prepared = _kept(None, self.optimizer.state_dict())

    def take(self) -> None:
        """See `Copy`; takes what was prepared, if updates are divided."""
        if self.shares.take():
            self._state, self._prepared = self._prepared, None
        else:
            self._state = _kept(self._state, self.optimizer.state_dict())

    def take_rest(self, _covered: Set[int]) -> None:
        """See `Copy`: the groups. All of its parameters are covered."""
        self._places = {id(parameter): place for place, parameter in enumerate(plain_parameters(self.optimizer))}
        self._rest = []
        for group in plain_groups(self.optimizer):
            kept = _kept(None, {name: value for name, value in group.items() if name != "params"})
            self._rest.append({**kept, "params": [self._places[id(one)] for one in group["params"]]})

    def promote(self) -> None:
        """See `Copy`."""
        self._state["param_groups"] = self._rest

    def save(self, parameter: Tensor) -> None:
        """See `Copy`: the state of the parameter."""
        states, place = self._state["state"], self._places.get(id(parameter))
        state = self.optimizer.state.get(parameter)
        if place is None:  # it was added since
            return
        if state is None:
            states.pop(place, None)
        else:
            states[place] = _kept(states.get(place), state)

    def put_back(self) -> None:
        """See `Copy`; with the states that `Shares.collect` has gathered."""
        state = _kept(None, self._state)
        state["state"].update(self.shares.put_back())
        self.optimizer.load_state_dict(state)
        self.optimizer.zero_grad(set_to_none=True)

    def content(self) -> Any:
        """See `Copy`; without kept shares, which `Shares.collect` sends."""
        return self._state

    def replace(self, content: Any) -> None:
        """See `Copy`."""
        self._state = content

    @property
    def nbytes(self) -> int:
        """See `Copy`."""
        return sum(tensor.nbytes for tensor in _tensors(self._state)) + self.shares.nbytes


class RandomNumbers:
    """The states of the generators of torch (CPU), NumPy and Python."""

    def __init__(self) -> None:
        self._states: tuple[Tensor, Any, Any] | None = None
        self._rest: tuple[Tensor, Any, Any] | None = None

    def take(self) -> None:
        """See `Copy`."""
        self._states = self._present()

    def take_rest(self, _covered: Set[int]) -> None:
        """See `Copy`."""
        self._rest = self._present()

    def promote(self) -> None:
        """See `Copy`."""
        self._states = self._rest

    def save(self, _parameter: Tensor) -> None:
        """See `Copy`: nothing."""

    def put_back(self) -> None:
        """See `Copy`."""
        assert self._states is not None, "a copy was taken"
        torch.set_rng_state(self._states[0])
        np.random.set_state(self._states[1])
        random.setstate(self._states[2])

    def content(self) -> Any:
        """See `Copy`: every rank has its own."""

    def replace(self, _content: Any) -> None:
        """See `Copy`: those of this process."""
        self.take()

    @property
    def nbytes(self) -> int:
        """See `Copy`; a few KiB are not counted."""
        return 0

    @staticmethod
    def _present() -> tuple[Tensor, Any, Any]:
        return torch.get_rng_state(), np.random.get_state(), random.getstate()


def _kept(before: Any, value: Any) -> Any:
    """A copy of the value, in the tensors of the last copy if they have its form."""
    if isinstance(value, Tensor):
        if isinstance(before, Tensor) and _form(before) == _form(value):
            return before.copy_(value.detach())
        return value.detach().clone()
    if isinstance(value, dict):
        old = before if isinstance(before, dict) else {}
        return {key: _kept(old.get(key), item) for key, item in value.items()}
    if type(value) in (list, tuple):
        olds = before if isinstance(before, (list, tuple)) and len(before) == len(value) else [None] * len(value)
        return type(value)(_kept(old, item) for old, item in zip(olds, value, strict=True))
    return copy.deepcopy(value)


def _form(tensor: Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.dtype, tensor.device, tensor.layout


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
