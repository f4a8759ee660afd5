"""The shares of a bucket: who updates which elements, their memory, and operations on them."""

from __future__ import annotations

import contextlib
from bisect import bisect
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from weft.api.request import call
from weft.torch.memory import readable, writable
from weft.torch.parallel.buckets import shaped

if TYPE_CHECKING:
    from weft.api.request import PreparedCall
    from weft.datatypes.ops import AverageOf, Op
    from weft.torch.parallel.buckets import Bucket, Slot
    from weft.torch.parallel.communication import Communication

__all__ = ["BLOCK_ELEMENTS", "Division", "Piece", "flattened", "own_memory", "place", "share_bounds", "whole_bounds"]

BLOCK_ELEMENTS = 16 << 10
"""Shares end at multiples of it within a tensor, so that norms can be added in blocks that do not
depend on the number of ranks.
"""


class Piece(NamedTuple):
    """The part of one parameter that a rank updates."""

    slot: Slot
    start: int
    """The first element, in the order of the bucket, of the flat parameter."""
    stop: int
    parameter: nn.Parameter
    """The optimizer's view of the elements: flat, or with the tensor's shape if it is whole."""
    gradient: Tensor
    """The averages of its gradient, in the same shape."""


class Division:
    """The shares of one bucket: see [Note: Divided updates].

    The parameters of the bucket are moved into one vector, so that one all-gather brings them.
    """

    def __init__(self, bucket: Bucket, communication: Communication, loads: Sequence[int] | None = None) -> None:
        """Every rank calls it for the same bucket.

        Args:
            bucket: The bucket; it refers to its division from now on.
            communication: The ranks.
            loads: If a tensor is to be updated by one rank, as optimizers need that combine its
                elements: how many elements of other buckets each rank updates.
        """
        sizes = [slot.parameter.numel() for slot in bucket.slots]
        bounds = share_bounds(sizes, communication.size) if loads is None else whole_bounds(sizes, loads)
        own = slice(bounds[communication.rank], bounds[communication.rank + 1])
        counts = [stop - start for start, stop in pairwise(bounds)]
        like = bucket.slots[0].parameter.detach()
        self._communication = communication
        self.parameters = self._memory(sum(sizes), like)
        self.averages = communication.memory(max(counts), like)[: own.stop - own.start]
        """The averaged gradients of this rank's share."""
        self.is_partial = False
        self._buffer, self._own = bucket.buffer, own
        starts = [0, *accumulate(sizes)]
        self._slots = bucket.slots
        self._moved = [slot.parameter for slot in bucket.slots]
        self._places = [self.parameters[start:stop] for start, stop in pairwise(starts)]
        self._addresses = [memory.data_ptr() for memory in self._places]
        self.pieces: Mapping[Slot, Any] = {
            slot: self._piece(slot, start, max(start, own.start), min(stop, own.stop))
            for slot, (start, stop) in zip(bucket.slots, pairwise(starts), strict=True)
            if max(start, own.start) < min(stop, own.stop)
        }
        self.owners: Mapping[Slot, list[int]] = {
            slot: [max(0, min(end, stop) - max(begin, start)) for begin, end in pairwise(bounds)]
            for slot, (start, stop) in zip(bucket.slots, pairwise(starts), strict=True)
        }
        self.counts = counts
        self._scatters: dict[Op | AverageOf, PreparedCall] = {}
        self.gather_gradients = call("all-gather", counts, readable(self.averages), writable(self._buffer))
        self.complete_parameters: PreparedCall = self._completion(counts)
        self._enter()
        bucket.division = self

    def scatter(self, op: Op | AverageOf) -> PreparedCall:
        """See `Shares`."""
        if op not in self._scatters:
            places = readable(self._buffer), writable(self.averages)
            self._scatters[op] = call("reduce-scatter", self.counts, *places, op=op)
        return self._scatters[op]

    def _memory(self, elements: int, like: Tensor) -> Tensor:
        return self._communication.memory(elements, like, of_thread=True)

    def _enter(self) -> None:
        """Moves the parameters into the memory."""
        self.hold_parameters()

    def _completion(self, counts: list[int]) -> PreparedCall:
        return call("all-gather", counts, readable(self.parameters[self._own]), writable(self.parameters))

    def updating(self) -> AbstractContextManager[None]:
        """See `Shares`."""
        return contextlib.nullcontext()

    def updated(self) -> None:
        """See `Shares`."""

    def hold_parameters(self) -> None:
        """See `Shares`. The program may have replaced a parameter's `data`."""
        addresses = list(map(torch.Tensor.data_ptr, self._moved))
        if addresses == self._addresses:
            return
        for parameter, memory, now, expected in zip(self._moved, self._places, addresses, self._addresses, strict=True):
            if now != expected:
                _move(parameter, memory)

    def take_from_bucket(self) -> None:
        """See `Shares`."""
        self.averages.copy_(self._buffer[self._own])

    def take_gradient(self, slot: Slot, gradient: Tensor) -> None:
        """See `Shares`."""
        piece = self.pieces.get(slot)
        if piece is None:
            return
        whole = flattened(gradient, slot.parameter)
        start = piece.gradient.storage_offset()
        self.averages[start : start + piece.stop - piece.start].copy_(whole[piece.start : piece.stop])

    def _piece(self, slot: Slot, first: int, start: int, stop: int) -> Piece:
        values = self.parameters[start:stop].detach()
        averages = self.averages[start - self._own.start : stop - self._own.start]
        if stop - start == slot.parameter.numel():
            values, averages = shaped(values, slot.parameter), shaped(averages, slot.parameter)
        return Piece(slot, start - first, stop - first, nn.Parameter(values), averages)


def flattened(value: Tensor, parameter: Tensor) -> Tensor:
    """A tensor of a parameter's shape, flat as in the bucket: a view or a copy."""
    if value.is_contiguous() and parameter.is_contiguous():
        return value.view(-1)
    flat = torch.empty(value.numel(), dtype=value.dtype, device="cpu")
    shaped(flat, parameter).copy_(value)
    return flat


def share_bounds(sizes: Sequence[int], ranks: int) -> list[int]:
    """Where the shares of a bucket end: rank r has the elements from bound r to bound r + 1.

    The shares are as equal as is possible where they end at the ends of tensors, or at blocks
    within them.
    """
    ends = [0, *accumulate(sizes)]
    return [_nearest(ends, ends[-1] * rank / ranks, BLOCK_ELEMENTS) for rank in range(ranks + 1)]


def whole_bounds(sizes: Sequence[int], loads: Sequence[int]) -> list[int]:
    """Where the shares of a bucket end if tensors are not cut.

    The ranks that update the fewest elements of other buckets get the more of this one.
    """
    ends = [0, *accumulate(sizes)]
    level, free = 0.0, float(ends[-1])
    for ranks, (load, above) in enumerate(pairwise([*sorted(loads), float("inf")]), 1):
        level = load + free / ranks  # of the ranks up to this one, once they have all of the bucket
        if level <= above:
            break
        free -= ranks * (above - load)
    wanted = accumulate((max(0.0, level - load) for load in loads), initial=0.0)
    return [_nearest(ends, min(target, ends[-1]), ends[-1]) for target in wanted]


def _nearest(ends: Sequence[int], target: float, block: int) -> int:
    """The place nearest to the target at which a share may end: of a tensor or a block in it."""
    tensor = min(bisect(ends, target), len(ends) - 1)
    before, after = ends[tensor - 1], ends[tensor]
    if block:
        before += int((target - before) / block) * block
        after = min(before + block, after)
    return before if target - before <= after - target else after


def own_memory(parameter: nn.Parameter) -> None:
    """Moves a parameter's values out of a division's memory."""
    _move(parameter, torch.empty(parameter.numel(), dtype=parameter.dtype, device="cpu"))


def _move(parameter: nn.Parameter, memory: Tensor) -> None:
    """Moves a parameter's values into this memory."""
    shaped(memory, parameter).copy_(parameter.detach())
    place(parameter, memory)


def place(parameter: nn.Parameter, memory: Tensor) -> None:
    """Makes this memory the parameter's."""
    torch.Tensor.data.__set__(parameter, shaped(memory, parameter))  # type: ignore[attr-defined]  # a guard would wait
