"""The divided state of an optimizer under recovery: two ranks keep each share.

[Note: Kept shares] Where updates are divided, a rank's share of the optimizer's state would be lost
with it. So each rank sends its share to another one, on another host if there is one, before the
ranks meet (see [Note: Committed steps]): a step that all survivors have prepared is complete among
them, unless a rank and the keeper of its share have died. The shares of the step before are kept
until the meeting has ended, since it may have been the last one.

After a death, a holder of each share sends it to all survivors, which make whole states from them:
the next wrapper divides these among as many ranks as there are then. Two of the survivors keep the
share, so that another death, before the next commit, loses nothing either. Ranks that leave in
order first give what they keep to others, so that a death just then is like any other.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from weft.api.group import Group
from weft.errors import Error, UnsupportedError
from weft.torch.exchange import decoded, encoded
from weft.torch.lookup import group_of
from weft.torch.parallel.buckets import shaped
from weft.torch.parallel.divided.division import flattened
from weft.torch.parallel.divided.optimizer import DividedOptimizer, StateInfo
from weft.torch.parallel.watched_groups import plain_parameters
from weft.torch.patches.modes import outside_of_modes

__all__ = ["Shares", "keepers", "new_keepers"]

_ALIGNMENT = 16
"""Bytes, of each tensor in a record: of the widest type."""
_LENGTH = 8
"""Bytes, of the number before the description of a record."""


class Shares:
    """The shares of an optimizer's state that this rank keeps: see [Note: Kept shares]."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._committed: _Records | None = None
        self._prepared: _Records | None = None
        """None if updates are not divided, as of `_committed`."""
        self._collected: tuple[_Records, dict[int, dict[str, Any]]] | None = None

    @property
    def nbytes(self) -> int:
        """The bytes of the committed shares on this rank."""
        return 0 if self._committed is None else sum(record.nbytes for record in self._committed.by_rank.values())

    @outside_of_modes
    def prepare(self, divided: DividedOptimizer | None) -> None:
        """Sends this rank's share, after all updates, to its keeper. Every rank calls it.

        Raises:
            weft.UnsupportedError: Not all ranks of the default group divide the updates.
            weft.Error: Communication has failed.
        """
        self._prepared = None
        if divided is None:
            return
        if divided.ranks != dist.get_world_size():
            raise UnsupportedError(
                f"updates divided among {divided.ranks} of {dist.get_world_size()} ranks: Recovery expects "
                "weft.torch.DataParallel of the default process group"
            )
        own = _packed(self._optimizer, divided)
        targets = [[keeper] if keeper != rank else [] for rank, keeper in enumerate(keepers(group_of().hosts))]
        self._prepared = _Records(divided.ranks, {dist.get_rank(): own, **_exchanged(own, targets)})

    def take(self) -> bool:
        """Makes the prepared shares the committed ones; returns whether there are any."""
        self._committed, self._prepared = self._prepared, None
        return self._committed is not None

    @outside_of_modes
    def hand_over(self, leaving: Collection[int]) -> None:
        """Lets two of the ranks that stay keep each share. Every rank calls it, after a commit.

        Raises:
            weft.Error: Communication has failed.
        """
        if self._committed is not None:
            records = self._committed.by_rank
            records.update(_exchanged(records[dist.get_rank()], new_keepers(group_of().hosts, leaving)))

    def forget(self) -> None:
        """Drops all shares, which are of a state that the others have left."""
        self._committed = self._prepared = None

    @outside_of_modes
    def collect(self, group: Group, *, committed: bool) -> None:
        """Gathers whole states from the survivors, of the committed or of the prepared step.

        All of them call it, and `put_back` when all have what they need.

        Raises:
            weft.Error: Communication has failed, or a share was lost with its keeper.
        """
        own = self._committed if committed else self._prepared
        self._collected = None
        ranks = int(group.all_gather(np.array([own.ranks if own else 0])).max())
        if not ranks:
            return
        records = own or _Records(ranks, {})  # of a rank that is new
        lengths = group.all_gather(np.array(records.lengths)).reshape(group.size, ranks)
        lost = np.flatnonzero(lengths.max(axis=0) == 0).tolist()
        if lost:
            raise Error(
                f"the optimizer's state of rank {', '.join(map(str, lost))} of {records.ranks} is lost: the ranks that "
                "kept a copy of it have died too. Load a checkpoint"
            )
        whole = _WholeStates(self._optimizer)
        kept: dict[int, Tensor] = {}
        keeper = keepers(group.hosts)
        for rank in range(records.ranks):
            source = int(lengths[:, rank].argmax())
            record = records.by_rank.get(rank)
            if record is None:
                record = torch.empty(int(lengths[source, rank]), dtype=torch.uint8, device="cpu")
            group.broadcast(record.numpy(), source)
            whole.add(record, rank)
            owner = rank % group.size
            if group.rank in (owner, keeper[owner]):
                kept[rank] = record
        self._collected = _Records(records.ranks, kept), whole.by_place

    def put_back(self) -> dict[int, dict[str, Any]]:
        """The collected states by the places of parameters; their shares are committed now."""
        self._committed, states = self._collected or (None, {})
        self._prepared = self._collected = None
        return states


@dataclasses.dataclass(frozen=True)
class _Records:
    """Shares as bytes, by the ranks of the group in which they were made."""

    ranks: int
    by_rank: dict[int, Tensor]

    @property
    def lengths(self) -> list[int]:
        """Their bytes, by rank; 0 of those that are elsewhere."""
        return [self.by_rank[rank].numel() if rank in self.by_rank else 0 for rank in range(self.ranks)]


@dataclasses.dataclass(frozen=True)
class _Entry:
    """An entry of the state of a part of a parameter. `info.slot` is the parameter's place."""

    start: int
    """The part's first element in the flat parameter."""
    info: StateInfo


def keepers(hosts: Sequence[int]) -> list[int]:
    """The rank that also keeps a rank's share, by rank: on the next host, or the next rank.

    Args:
        hosts: The number of each rank's host.
    """
    members = defaultdict(list)
    for rank, host in enumerate(hosts):
        members[host].append(rank)
    places = list(members.values()) if len(members) > 1 else [[rank] for rank in range(len(hosts))]
    found = list(range(len(hosts)))
    for number, own in enumerate(places):
        others = [rank for ranks in places[number + 1 :] + places[:number] for rank in ranks]
        for index, rank in enumerate(own if others else []):
            found[rank] = others[index % len(others)]
    return found


def new_keepers(hosts: Sequence[int], leaving: Collection[int]) -> list[list[int]]:
    """The ranks that are to keep each rank's share besides those that do, where some ranks leave.

    Args:
        hosts: The number of each rank's host.
        leaving: The ranks that leave: not all.
    """
    staying = [rank for rank in range(len(hosts)) if rank not in leaving]
    before, after = keepers(hosts), keepers([hosts[rank] for rank in staying])
    found: list[list[int]] = []
    for rank, keeper in enumerate(before):
        left = [one for one in (rank, keeper) if one in staying]
        first = left[0] if left else staying[rank % len(staying)]
        second = left[1] if len(left) > 1 else staying[after[staying.index(first)]]
        found.append([one for one in dict.fromkeys((first, second)) if one not in (rank, keeper)])
    return found


def _exchanged(own: Tensor, targets: Sequence[Collection[int]]) -> dict[int, Tensor]:
    """Sends a record to this rank's targets; those that others send to this one, by their ranks."""
    group = group_of()
    lengths = group.all_gather(np.array([own.numel()])).ravel().tolist()
    wanted = [rank for rank in range(group.size) if group.rank in targets[rank]]
    received = [lengths[rank] if rank in wanted else 0 for rank in range(group.size)]
    sent = [own.numel() if rank in targets[group.rank] else 0 for rank in range(group.size)]
    records = torch.empty(sum(received), dtype=torch.uint8, device="cpu")
    copies = len(targets[group.rank])
    dist.all_to_all_single(records, own if copies == 1 else own.repeat(copies), received, sent)
    parts = torch.split(records, [lengths[rank] for rank in wanted])
    return dict(zip(wanted, parts, strict=True))


def _packed(optimizer: Optimizer, divided: DividedOptimizer) -> Tensor:
    """This rank's share as bytes: the length of a description, the description, and tensors."""
    places = {id(parameter): place for place, parameter in enumerate(plain_parameters(optimizer))}
    entries: list[_Entry] = []
    tensors: list[Tensor] = []
    for info, piece, value in divided.entries():
        entries.append(_Entry(piece.start, dataclasses.replace(info, slot=places[id(piece.slot.parameter)])))
        if info.kind != "number":
            tensors.append(flattened(value, piece.parameter) if info.kind == "elements" else value.reshape(-1))
    description = torch.frombuffer(bytearray(encoded(entries)), dtype=torch.uint8)
    length = torch.tensor([description.numel()], dtype=torch.int64, device="cpu")
    parts = [one.view(torch.uint8) for one in (length, description, *tensors)]
    starts = [0, *accumulate(_aligned(part.numel()) for part in parts)]
    record = torch.zeros(starts[-1], dtype=torch.uint8, device="cpu")
    for start, part in zip(starts, parts, strict=False):
        record[start : start + part.numel()].copy_(part)
    return record


def _unpacked(record: Tensor, rank: int) -> Iterator[tuple[_Entry, Tensor]]:
    """The entries of a share, with their flat values: empty for numbers, which are in `info`."""
    start = _ALIGNMENT
    stop = start + int(record[:_LENGTH].view(torch.int64))
    entries: list[_Entry] = decoded(record[start:stop].numpy().tobytes(), list[_Entry], rank)
    for entry in entries:
        start = _aligned(stop)
        dtype = getattr(torch, entry.info.dtype or "uint8")
        stop = start + (0 if entry.info.kind == "number" else prod(entry.info.shape) * dtype.itemsize)
        yield entry, record[start:stop].view(dtype)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


class _WholeStates:
    """The states of whole parameters, from shares."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.by_place: dict[int, dict[str, Any]] = defaultdict(dict)
        """By the places of parameters in the optimizer's groups."""
        self._parameters = plain_parameters(optimizer)
        self._flat: dict[tuple[int, str], Tensor] = {}

    def add(self, record: Tensor, rank: int) -> None:
        """Takes the share of a rank."""
        for entry, value in _unpacked(record, rank):
            info, state = entry.info, self.by_place[entry.info.slot]
            if info.kind == "elements":
                self._elements(info, value)[entry.start : entry.start + value.numel()].copy_(value)
            elif info.name not in state:
                state[info.name] = info.value if info.kind == "number" else value.view(info.shape).clone()

    def _elements(self, info: StateInfo, like: Tensor) -> Tensor:
        """The flat memory of a state with an element for each of the parameter's."""
        key = info.slot, info.name
        if key not in self._flat:
            parameter = self._parameters[info.slot]
            self._flat[key] = torch.empty(parameter.numel(), dtype=like.dtype, device="cpu")
            self.by_place[info.slot][info.name] = shaped(self._flat[key], parameter)
        return self._flat[key]
