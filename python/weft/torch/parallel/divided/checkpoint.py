"""The optimizer's state for `torch.distributed.checkpoint`, each rank with its own shares.

States with an element for each of the parameter's are saved flat, in the order of their memory, so
that a rank's share is one range of them on any number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType
from torch.optim import Optimizer

from weft.errors import UnsupportedError
from weft.torch.parallel.buckets import shaped
from weft.torch.parallel.cache_blocking import is_per_element
from weft.torch.parallel.divided.division import flattened
from weft.torch.parallel.divided.optimizer import Part, trial_step
from weft.torch.parallel.partial_step import StepSettings
from weft.torch.parallel.watched_groups import plain_groups

__all__ = ["Share", "load_sharded_state", "refusal", "sharded_state"]


class Share(Tensor):
    """A range of a flat tensor, whose other elements are on other ranks.

    It has the methods by which `torch.distributed.checkpoint` saves and loads parts of tensors.
    """

    own: Tensor
    """The elements of this rank, flat."""
    start: int
    """The first one's place."""

    def __new__(cls, own: Tensor, start: int, elements: int) -> Share:
        """`own` are the elements from `start` on of a tensor with that many."""
        share: Share = Tensor._make_wrapper_subclass(cls, (elements,), dtype=own.dtype, device=own.device)
        share.own, share.start = own, start
        return share

    @classmethod
    def __torch_dispatch__(cls, function: Any, *_: Any) -> Any:
        raise UnsupportedError(
            f"{function} of a share of an optimizer's state: expected torch.distributed.checkpoint.save or load; "
            "full_state_dict() has whole tensors"
        )

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Share({self.start} to {self.start + self.own.numel()} of {self.numel()} elements)"

    def __create_write_items__(self, name: str, _: object) -> list[WriteItem]:
        return [
            WriteItem(
                MetadataIndex(name, chunk.offsets),
                WriteItemType.SHARD,
                tensor_data=TensorWriteData(chunk, TensorProperties(dtype=self.dtype), self.size()),
            )
            for chunk in self.__create_chunk_list__()
        ]

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        if self.own.numel() == 0 < self.numel():
            return []
        return [ChunkStorageMetadata(torch.Size([self.start]), self.own.size())]

    def __get_tensor_shard__(self, _: object) -> Tensor:
        return self.own


PartOf = Callable[[Tensor], Part | None]
"""This rank's part of a parameter; None if it has none."""


def sharded_state(optimizer: Optimizer, part_of: PartOf, *, for_loading: bool) -> dict[int, dict[str, Any]]:
    """The states of this rank's parts, by the places of their parameters in the optimizer.

    With `for_loading`, also those that the first step would make.
    """
    found = {}
    settings = StepSettings(optimizer, {}).groups
    for place, (number, parameter) in enumerate(_parameters(optimizer)):
        if (part := part_of(parameter)) is None:
            continue
        state = part.states.get(part.values)
        if not state and for_loading and parameter.requires_grad:
            state = _fresh_state(optimizer, settings[number], part.values)
        if state:
            found[place] = {name: _shared(value, part) for name, value in state.items()}
    return found


def refusal(optimizer: Optimizer, part_of: PartOf, loaded: Mapping[str, Any]) -> str:
    """Why this cannot be loaded: it is of other shares than this rank's; empty if it can."""
    for place, (_, parameter) in enumerate(_parameters(optimizer)):
        part = part_of(parameter)
        for name, value in loaded["state"].get(place, {}).items():
            if part is None or not _fits(value, part):
                has = "nothing" if part is None else f"{part.values.numel()} elements from {part.start} on"
                return f"the state {name!r} of parameter {place} is {value!r}, of which this rank updates {has}"
    return ""


def load_sharded_state(optimizer: Optimizer, part_of: PartOf, loaded: Mapping[str, Any]) -> None:
    """Takes over what was loaded into a `sharded_state`, and its groups' hyperparameters."""
    for place, (_, parameter) in enumerate(_parameters(optimizer)):
        part, states = part_of(parameter), loaded["state"].get(place)
        if part is not None and states and not _is_unfilled(states):
            state = part.states.setdefault(part.values, {})
            for name, value in states.items():
                _put(state, name, value, part)
    for group, values in zip(plain_groups(optimizer), loaded["param_groups"], strict=True):
        group.update({name: value for name, value in values.items() if name != "params"})


def _parameters(optimizer: Optimizer) -> Iterator[tuple[int, Tensor]]:
    """Each parameter, with the number of its group."""
    return ((number, one) for number, group in enumerate(plain_groups(optimizer)) for one in group["params"])


def _shared(value: Any, part: Part) -> Any:
    if not is_per_element(value, part.values):
        return value
    return Share(flattened(value, part.values), part.start, part.whole.numel())


def _fits(value: Any, part: Part) -> bool:
    if isinstance(value, Share):
        return value.own.numel() == part.values.numel() and value.start == part.start
    return not is_per_element(value, part.values)


def _put(state: dict[str, Any], name: str, value: Any, part: Part) -> None:
    if not isinstance(value, Share):
        state[name] = value.clone() if isinstance(value, Tensor) else value
    elif name not in state:
        state[name] = shaped(value.own, part.values)
    elif state[name].data_ptr() != value.own.data_ptr():
        state[name].copy_(shaped(value.own, part.values))


def _fresh_state(optimizer: Optimizer, settings: Mapping[str, Any], values: Tensor) -> dict[str, Any]:
    """The state that a first step makes, for a checkpoint to fill: with NaN in its tensors."""
    trial, parameter = trial_step(optimizer, settings, torch.zeros_like(values))
    state: dict[str, Any] = dict(trial.state.get(parameter, {}))
    for value in _floats(state):
        value.fill_(torch.nan)
    return state


def _is_unfilled(states: Mapping[str, Any]) -> bool:
    """Whether a checkpoint had no state of this parameter."""
    floats = [value.own if isinstance(value, Share) else value for value in _floats(states)]
    return bool(floats) and all(bool(value.isnan().all()) for value in floats)


def _floats(state: Mapping[str, Any]) -> list[Tensor]:
    return [value for value in state.values() if isinstance(value, Tensor) and value.is_floating_point()]
