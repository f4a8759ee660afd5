"""The user's optimizer on the shares of this rank, and its state."""

from __future__ import annotations

import contextlib
import dataclasses
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise, zip_longest
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from weft.api.request import call
from weft.errors import ConfigError, UnsupportedError
from weft.torch.memory import readable, writable
from weft.torch.parallel.buckets import Bucket, Slot, shaped
from weft.torch.parallel.cache_blocking import is_per_element
from weft.torch.parallel.communication import Communication
from weft.torch.parallel.context import outside_of_everything
from weft.torch.parallel.divided.division import Piece, flattened
from weft.torch.parallel.optimizer_kinds import is_elementwise
from weft.torch.parallel.partial_step import StepSettings, groups_differ, step_on
from weft.torch.patches.optimizers import bare_copy

__all__ = [
    "DividedOptimizer",
    "Part",
    "StateInfo",
    "check_optimizers",
    "check_whole",
    "note_loaded",
    "to_be_loaded",
    "trial_step",
]


@dataclasses.dataclass(frozen=True)
class StateInfo:
    """An entry of a parameter's state, as its owners describe it."""

    slot: int
    """Its place among the divided parameters."""
    name: str
    kind: str
    """`elements`: one for each element of the parameter; `tensor`; or `number`."""
    dtype: str
    shape: list[int]
    value: float | int | bool | None
    owner: int
    """The lowest rank that has it."""


class Part(NamedTuple):
    """The part of a parameter that a rank updates: a share of it, or all."""

    values: Tensor
    """The key of its state; with the parameter's shape, or flat."""
    whole: Tensor
    """The parameter."""
    start: int
    """The first element in the flat parameter."""
    states: dict[Tensor, Any]
    """The states of an optimizer."""


class DividedOptimizer:
    """An optimizer whose steps update the pieces of this rank.

    Parameters of buckets that are not divided stay with the user's optimizer.
    """

    def __init__(self, optimizer: Optimizer, communication: Communication) -> None:
        self._inner = optimizer
        self._communication = communication
        self._own = bare_copy(optimizer)
        """A copy with groups and state of its own: other threads may use the inner one."""
        self._own.state = defaultdict(dict)
        self._inner_state = optimizer.state
        """Replaced by `load_state_dict`."""
        self._pieces: dict[Slot, Piece] = {}
        self._owners: dict[Slot, list[int]] = {}
        """How many elements of each divided parameter each rank updates."""
        self._lack = _lack_of(optimizer)
        self._lack.divided = weakref.ref(self)

    @property
    def inner(self) -> Optimizer:
        """The user's optimizer."""
        return self._inner

    @property
    def ranks(self) -> int:
        """The number of ranks among which updates are divided."""
        return self._communication.size

    def step(self, groups: Sequence[tuple[dict[str, Any], Piece]], handed_over: Mapping[str, Any]) -> None:
        """Updates pieces, each by the settings of its group at the time of the step."""
        if not groups:
            return
        by_group: dict[int, dict[str, Any]] = {}
        for settings, piece in groups:
            group = by_group.setdefault(id(settings), {**settings, "params": []})
            piece.parameter.grad = piece.gradient
            group["params"].append(piece.parameter)
        try:
            with outside_of_everything():
                step_on(self._own, list(by_group.values()), handed_over)
        finally:
            for _, piece in groups:
                piece.parameter.grad = None

    @contextlib.contextmanager
    def incomplete(self) -> Iterator[None]:
        """Allows the user's optimizer to give its incomplete state within the block."""
        self._lack.allowed = self
        try:
            yield
        finally:
            self._lack.allowed = None

    def end(self) -> None:
        """Lets the user's optimizer refuse work until the state that it lacks is loaded."""
        is_loaded = self._inner.state is not self._inner_state
        if not is_loaded and any(self._own.state.get(piece.parameter) for piece in self._pieces.values()):
            self._lack.unwrapped = weakref.ref(self)

    @property
    def state(self) -> dict[Tensor, Any]:
        """The state of this rank's pieces, by parameter."""
        self.take_inner()
        pieces = ((slot, self._own.state.get(piece.parameter)) for slot, piece in self._pieces.items())
        return {slot.parameter: state for slot, state in pieces if state}

    @property
    def divides_any(self) -> bool:
        """Whether any updates are divided."""
        return bool(self._owners)

    def divides(self, slot: Slot) -> bool:
        """Whether this parameter's updates are divided."""
        return slot in self._owners

    def part_of(self, slot: Slot) -> Part | None:
        """This rank's part of a divided parameter; None if it has none."""
        piece = self._pieces.get(slot)
        return None if piece is None else Part(piece.parameter, slot.parameter, piece.start, self._own.state)

    def use(self, buckets: Iterable[Bucket]) -> None:
        """Continues with the divisions of these buckets. Every rank calls it.

        A rank gets the state of its new pieces from those that had it, one parameter at a time.
        """
        divisions = [bucket.division for bucket in buckets if bucket.division is not None]
        owners = {slot: counts for division in divisions for slot, counts in division.owners.items()}
        pieces = {slot: piece for division in divisions for slot, piece in division.pieces.items()}
        states: dict[Tensor, Any] = {}
        for slot, infos in self._divided_infos():
            if (counts := owners.get(slot)) is None:
                self._inner.state[slot.parameter] = {name: self._whole(slot, info) for name, info in infos.items()}
                continue
            found = {name: self._moved(slot, info, counts) for name, info in infos.items()}
            if (piece := pieces.get(slot)) is not None:
                states[piece.parameter] = found
        self._own.state = defaultdict(dict, states)
        self._pieces, self._owners = pieces, owners
        self.take_inner()

    def take_inner(self) -> None:
        """Takes this rank's pieces of state that was loaded into the user's optimizer."""
        if self._inner.state is not self._inner_state:
            self._inner_state = self._inner.state
            self._own.state.clear()
        for slot in self._owners:
            whole = self._inner.state.pop(slot.parameter, None)
            piece = self._pieces.get(slot)
            if whole and piece is not None:
                self._own.state[piece.parameter] = _cut(whole, piece)

    def whole_states(self) -> Iterator[tuple[Slot, dict[str, Any]]]:
        """The whole state of each divided parameter that has one, in turn. Every rank calls it."""
        for slot, infos in self._divided_infos():
            yield slot, {name: self._whole(slot, info) for name, info in infos.items()}

    def entries(self) -> Iterator[tuple[StateInfo, Piece, Any]]:
        """The entries of the state of this rank's pieces, with their values."""
        self.take_inner()
        for place, slot in enumerate(self._owners):
            if (piece := self._pieces.get(slot)) is not None:
                for name, value in self._own.state.get(piece.parameter, {}).items():
                    yield _describe(place, piece, name, value, self._communication.rank), piece, value

    def _divided_infos(self) -> Iterator[tuple[Slot, dict[str, StateInfo]]]:
        """The entries of the state of each divided parameter that has one, as on all ranks."""
        described = self._communication.gather([info for info, _, _ in self.entries()], list[StateInfo])
        found: dict[int, dict[str, StateInfo]] = {}
        for theirs in described:
            for info in theirs:
                found.setdefault(info.slot, {}).setdefault(info.name, info)
        places = dict(enumerate(self._owners))
        for place in sorted(found):
            yield places[place], found[place]

    def _whole(self, slot: Slot, info: StateInfo) -> Any:
        if info.kind == "number":
            return info.value
        dtype = getattr(torch, info.dtype)
        if info.kind == "tensor":
            piece = self._pieces.get(slot)
            own = None if piece is None else self._own.state[piece.parameter][info.name]
            value = torch.empty(info.shape, dtype=dtype, device="cpu") if own is None else own.clone()
            self._communication.broadcast([value], info.owner)
            return value
        flat = torch.empty(slot.parameter.numel(), dtype=dtype, device="cpu")
        gather = call("all-gather", self._owners[slot], readable(self._own_elements(slot, info)), writable(flat))
        self._communication.issue(gather).wait()
        return shaped(flat, slot.parameter)

    def _moved(self, slot: Slot, info: StateInfo, counts: Sequence[int]) -> Any:
        """This rank's part where the ranks have that many elements each."""
        if info.kind != "elements":
            return self._whole(slot, info)
        own = self._own_elements(slot, info)
        rank, before, after = self._communication.rank, _ranges(self._owners[slot]), _ranges(counts)
        found = torch.empty(counts[rank], dtype=own.dtype, device="cpu")
        received = [_common(one, after[rank]) for one in before]
        self._communication.exchange(found, own, received, [_common(before[rank], one) for one in after])
        return shaped(found, slot.parameter) if counts[rank] == slot.parameter.numel() else found

    def _own_elements(self, slot: Slot, info: StateInfo) -> Tensor:
        """This rank's part of a state with an element for each of the parameter's, flat."""
        piece = self._pieces.get(slot)
        if piece is None:
            return torch.empty(0, dtype=getattr(torch, info.dtype), device="cpu")
        own: Tensor = self._own.state[piece.parameter][info.name]
        return flattened(own, piece.parameter)


@dataclasses.dataclass
class _Lack:
    """Where the state is that a user's optimizer lacks."""

    divided: Callable[[], DividedOptimizer | None]
    """Of the last model that was wrapped."""
    unwrapped: Callable[[], DividedOptimizer | None] | None = None
    """The one that has what the optimizer lacks since its model was unwrapped."""
    allowed: DividedOptimizer | None = None
    """The one that adds what is not given: see `DividedOptimizer.incomplete`."""


_lacks: weakref.WeakKeyDictionary[Optimizer, _Lack] = weakref.WeakKeyDictionary()


def _lack_of(optimizer: Optimizer) -> _Lack:
    """That of an optimizer, whose hooks ask for it; those of its copies find none."""
    lack = _lacks.get(optimizer)
    if lack is None:
        lack = _lacks[optimizer] = _Lack(lambda: None)
        optimizer.register_state_dict_pre_hook(check_whole)
        optimizer.register_step_pre_hook(_check_step)
        optimizer.register_load_state_dict_post_hook(note_loaded)
    return lack


def check_whole(optimizer: Optimizer) -> None:
    """Raises `weft.UnsupportedError` if a user's optimizer lacks state."""
    if (lack := _lacks.get(optimizer)) is None:
        return
    divided = (lack.unwrapped or lack.divided)()
    is_whole = lack.unwrapped is None and (divided is None or not divided.divides_any)
    if not is_whole and (lack.allowed is None or lack.allowed is not divided):
        raise UnsupportedError(
            "this needs the optimizer's state of all ranks, which is divided among them: call full_state_dict() "
            "of the weft.torch.Overlapped on all ranks; its result can be loaded on any number of ranks"
        )


def note_loaded(optimizer: Optimizer) -> None:
    """Notes that a whole state was loaded."""
    if (lack := _lacks.get(optimizer)) is not None:
        lack.unwrapped = None


@contextlib.contextmanager
def to_be_loaded(optimizer: Optimizer) -> Iterator[None]:
    """Lets the optimizer of an unwrapped model lack nothing within the block."""
    lack = _lacks.get(optimizer) or _Lack(lambda: None)
    unwrapped, lack.unwrapped = lack.unwrapped, None
    try:
        yield
    finally:
        lack.unwrapped = unwrapped


def _check_step(optimizer: Optimizer, *_: Any) -> None:
    """Raises `weft.UnsupportedError` if a model was unwrapped, and no state was loaded since."""
    lack = _lacks.get(optimizer)
    if lack is not None and lack.unwrapped is not None:
        raise UnsupportedError(
            "the model was unwrapped while the optimizer's state was divided among its ranks: call "
            "full_state_dict() of its weft.torch.Overlapped on all ranks, best before unwrap(), and load the "
            "result into the optimizer"
        )


def check_optimizers(optimizer: Optimizer, groups: list[list[str]], communication: Communication) -> None:
    """Checks that all ranks have this optimizer, and that its updates can be divided.

    `groups` are the names of its parameters, by group.

    Raises:
        weft.ConfigError: The optimizers of the ranks differ, or their parameters do.
        weft.UnsupportedError: It keeps state of all parameters in its groups.
    """
    own = repr(optimizer)
    for rank, theirs in enumerate(communication.gather(own, str)):
        if theirs != own:
            raise ConfigError(
                f"the optimizer of rank {rank} differs from that of rank {communication.rank}: {theirs} there, {own} "
                f"here. All {communication.size} ranks must make the same optimizer where updates are divided"
            )
    for rank, others in enumerate(communication.gather(groups, list[list[str]])):
        for number, (theirs, ours) in enumerate(zip_longest(others, groups, fillvalue=())):
            for place, (there, here) in enumerate(zip_longest(theirs, ours, fillvalue="nothing")):
                if there != here:
                    raise ConfigError(
                        f"the optimizer of rank {rank} has {there} as parameter {place} of group {number}, that of "
                        f"rank {communication.rank} has {here}: expected the same parameters in one order on all ranks"
                    )
    if not is_elementwise(optimizer):
        _check_groups(optimizer)


def trial_step(optimizer: Optimizer, settings: Mapping[str, Any], values: Tensor) -> tuple[Any, nn.Parameter]:
    """A copy of an optimizer after its first step, and the parameter of that step.

    The parameter has these values, and the same as its gradient; `settings` are those of its group,
    as of `StepSettings`.
    """
    trial = bare_copy(optimizer)
    trial.state = defaultdict(dict)
    parameter = nn.Parameter(values)
    parameter.grad = values.clone()
    trial.param_groups = [{**settings, "params": [parameter]}]
    with outside_of_everything():
        trial.step()
    return trial, parameter


def _check_groups(optimizer: Optimizer) -> None:
    """Tries a step on another parameter: what its groups then hold belongs to all parameters."""
    settings = StepSettings(optimizer, {}).groups[0]
    if "lr" in settings:  # which may be 0 at first
        settings["lr"] = settings["lr"] * 0 + 1.0
    values = torch.ones(2, 2, dtype=torch.float32, device="cpu")
    trial, parameter = trial_step(optimizer, settings, values.clone())
    if not trial.state and torch.equal(parameter, values):
        raise UnsupportedError(
            f"a copy of {type(optimizer).__name__} does not update the parameters in its groups, as if it wrapped "
            'another optimizer: its updates cannot be divided, make the DataParallel with shard="none"'
        )
    if groups_differ([settings], StepSettings(trial, {}).groups):
        raise UnsupportedError(
            f"{type(optimizer).__name__} keeps state of all parameters in its groups, so its updates cannot be "
            'divided: make the DataParallel with shard="none"'
        )


def _describe(place: int, piece: Piece, name: str, value: Any, rank: int) -> StateInfo:
    if isinstance(value, Tensor):
        kind = "elements" if is_per_element(value, piece.parameter) else "tensor"
        dtype = str(value.dtype).removeprefix("torch.")
        return StateInfo(place, name, kind, dtype, list(value.shape), None, rank)
    if value is None or isinstance(value, (bool, int, float)):
        return StateInfo(place, name, "number", "", [], value, rank)
    raise UnsupportedError(
        f"the optimizer's state {name!r} of {piece.slot.name} is a {type(value).__name__}: expected a tensor or a "
        "number where updates are divided"
    )


def _ranges(counts: Sequence[int]) -> list[range]:
    return [range(start, stop) for start, stop in pairwise([0, *accumulate(counts)])]


def _common(one: range, other: range) -> int:
    return max(0, min(one.stop, other.stop) - max(one.start, other.start))


def _cut(whole: Mapping[str, Any], piece: Piece) -> dict[str, Any]:
    """The state of a piece from that of its whole parameter."""
    return {name: _cut_one(value, piece) for name, value in whole.items()}


def _cut_one(value: Any, piece: Piece) -> Any:
    parameter = piece.slot.parameter
    if not isinstance(value, Tensor):
        return value
    if value.shape != parameter.shape or piece.stop - piece.start == parameter.numel():
        return value.clone(memory_format=torch.preserve_format)
    return flattened(value, parameter)[piece.start : piece.stop].clone()
