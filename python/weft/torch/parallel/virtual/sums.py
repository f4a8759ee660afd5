"""Averages over virtual ranks.

[Note: Sums on the way] Where the rest is a tree of the ranks, a bucket is one all-reduce, as exact
averages are: by slice-tree on one host, by halving-doubling on a power of two of ranks, by two-shot
on three, and by any algorithm on two. Where updates are divided it is one reduce-scatter: by
slice-tree on one host, by direct on three ranks, and by any algorithm on two.

A sum of zeros has a sign that depends on how many were added. So zero is added: to the total, or to
one of the summands.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from weft.api.request import PreparedCall, call
from weft.datatypes.ops import AverageOf, Op
from weft.errors import ArgumentError, ConfigError, Error, UnsupportedError
from weft.torch import modes
from weft.torch.memory import readable, writable
from weft.torch.modes.mode import Stages
from weft.torch.modes.tree import Node, TreeSum, is_tree_of_ranks
from weft.torch.modes.virtual_ranks import averaged, equal_counts, owned_average
from weft.torch.parallel.averaging import BothHandles
from weft.torch.parallel.buckets import Bucket, Handle, Slot, shaped
from weft.torch.parallel.communication import Communication, prepared_all_reduce
from weft.torch.parallel.gradient import raw_gradient
from weft.torch.parallel.mode_averaging import ModeAveraging, for_mode
from weft.torch.parallel.observer import Observer
from weft.torch.parallel.virtual.probe import Probe, check_probes

__all__ = ["OUTSIDE_OF_PARTS", "PartAveraging", "PartSums"]

OUTSIDE_OF_PARTS = (
    "the model has virtual ranks, so its gradients are those of parts: call it within `for part in model.parts(batch)`"
)
_PRECISE = (torch.float32, torch.float64)
"""The types that weft and torch add with the same bits on the way; shorter ones are rounded."""


class PartSums(modes.Mode):
    """The averages of gradients over all parts of a step, in one order: see [Note: One tree].

    The gradients of a rank's parts are kept here, but for those of its last one, which are in the
    bucket. None stands for zeros.
    """

    def __init__(self, ranges: Sequence[range], rank: int, seed: int, probe: Probe, *, strict: bool) -> None:
        """`ranges` are the ranks' parts; they, `seed` and `probe` are the same on all ranks."""
        super().__init__()
        self._probe = probe
        self.strict = strict
        self._virtual_ranks = ranges[-1].stop
        self._rank = rank
        self.deal(ranges)
        self.seed = seed
        self._kept: dict[str, TreeSum[Tensor | None]] = {}
        self._last = -1
        self._averaged: set[int] = set()
        """The buckets of which the averages of this step have begun."""

    def deal(self, ranges: Sequence[range]) -> None:
        """Continues with these parts, by rank. Every rank calls it between two steps."""
        self.ranges = list(ranges)
        self.own = self.ranges[self._rank]
        self.is_tree_of_ranks = len(ranges) > 1 and is_tree_of_ranks(ranges)

    @property
    def step(self) -> int:
        """The number of the next step."""
        return self._step

    def begin(self, last: int) -> None:
        """Begins a step; `last` is the part whose backward starts the averages."""
        self._kept.clear()
        self._averaged.clear()
        self._last = last

    def end(self) -> None:
        """Ends the step: no average begins any more."""
        self._last = -1

    @property
    def averages(self) -> bool:
        """Whether averages of this step have begun."""
        return bool(self._averaged)

    def begin_average(self, bucket: int) -> None:
        """Notes that the average of this bucket begins.

        Raises:
            weft.Error: No step is under way.
            weft.UnsupportedError: It is a second one of the step.
        """
        if self._last < 0:
            raise Error(OUTSIDE_OF_PARTS)
        if bucket in self._averaged:
            raise UnsupportedError(
                "a second backward in the last of model.parts(): the first one has started the averages over all "
                "parts. Add the losses, or call the model for all but the last one within model.no_sync()"
            )
        self._averaged.add(bucket)

    def keep(self, part: int, slots: Sequence[Slot]) -> None:
        """Takes the gradients of a part from their parameters."""
        for slot in slots:
            gradient = raw_gradient(slot.parameter)
            slot.drop_gradient()  # and not that of an update which is still to come
            self._kept.setdefault(slot.name, TreeSum(_sum)).push((0, part), gradient)

    def has(self, name: str) -> bool:
        """Whether a part has given the parameter a gradient."""
        kept = self._kept.get(name)
        return kept is not None and any(value is not None for value in kept.values)

    def average(self, bucket: modes.Bucket, communication: modes.Communication) -> Stages:
        """See `weft.torch.modes.Mode.average`."""
        self._begin(bucket)
        nodes, sums = self._sums(bucket)
        yield from averaged(bucket.buffer, nodes, sums, self.ranges, communication)

    def average_share(
        self, bucket: modes.Bucket, counts: Sequence[int], share: Tensor, communication: modes.Communication
    ) -> Stages:
        """Averages into `share` what this rank owns; the ranks own that many elements each."""
        self._begin(bucket)
        _, sums = self._sums(bucket)
        share.copy_((yield from owned_average(sums, counts, self.ranges, communication)))

    def add_parts(self, bucket: modes.Bucket, zeros: slice) -> None:
        """Makes the buffer the sum of this rank's parts, one node; its `zeros` become positive."""
        self._begin(bucket)
        _, (total,) = self._sums(bucket)
        if total is not bucket.buffer:
            bucket.buffer.copy_(total)
        bucket.buffer[zeros].add_(0.0)

    @property
    def divisor(self) -> AverageOf:
        """The average over all parts, as an operation on sums."""
        return AverageOf(self._virtual_ranks)

    def _sums(self, bucket: modes.Bucket) -> tuple[list[Node], list[Tensor]]:
        """The sums of this rank's nodes; the bucket's memory is the one with its last part."""
        found: list[list[Tensor | None]] = []
        views: list[Tensor] = []
        nodes: list[Node] = []
        for name, own, parameter in zip(bucket.names, bucket.parts(bucket.buffer), bucket.parameters(), strict=True):
            kept = self._kept.pop(name, None) or TreeSum(_sum)
            view: Tensor = shaped(own, parameter)
            kept.push((0, self._last), view)
            for empty in range(self._last + 1, self.own.stop):
                kept.push((0, empty), None)
            nodes = kept.nodes
            views.append(view)
            found.append(kept.values)
        # A node of which only the last part is here is in the bucket's memory already.
        return nodes, [
            bucket.buffer if all(map(operator.is_, values, views)) else self._flat(bucket, values)
            for values in zip(*found, strict=True)
        ]

    def _flat(self, bucket: modes.Bucket, values: Sequence[Tensor | None]) -> Tensor:
        if all(value is None for value in values):
            return torch.zeros_like(bucket.buffer)
        flat = torch.empty_like(bucket.buffer)
        for place, parameter, value in zip(bucket.parts(flat), bucket.parameters(), values, strict=True):
            if value is None:
                place.zero_()
            else:
                shaped(place, parameter).copy_(value)
        return flat

    def state_dict(self) -> dict[str, Any]:
        """See `weft.torch.modes.Mode.state_dict`. It is the same on all ranks."""
        own = {"seed": self.seed, "virtual_ranks": self._virtual_ranks, "probe": self._probe}
        return {**super().state_dict(), **own}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `weft.torch.modes.Mode.load_state_dict`; it may be another rank's.

        Raises:
            weft.ArgumentError: It is the state of a training with another number of virtual ranks.
            weft.ConfigError: This process computes other bits than the one that saved it.
        """
        if state.get("virtual_ranks", self._virtual_ranks) != self._virtual_ranks:
            raise ArgumentError(
                f"the state is of {state['virtual_ranks']} virtual ranks: expected {self._virtual_ranks}, as a "
                "training keeps its number"
            )
        check_probes({"this process": self._probe}, "the saved one", state.get("probe", {}), strict=self.strict)
        super().load_state_dict(state)
        self.seed = state["seed"]


class PartAveraging(ModeAveraging):
    """Averages of buckets by `PartSums`."""

    _mode: PartSums

    def __init__(self, mode: PartSums, communication: Communication, observer: Observer) -> None:
        """Every rank calls it."""
        super().__init__(mode, communication, observer)
        one, block = (torch.zeros(n, dtype=torch.float32, device=torch.device("cpu")) for n in (1, communication.size))
        self._algorithms = self._possible(_algorithms(communication.size), prepared_all_reduce(one, "sum"))
        scatter = call("reduce-scatter", [1] * communication.size, readable(block), writable(one), op="sum")
        self._scatters = self._possible(_scatters(communication.size), scatter)
        """The same for divided buckets."""

    def _possible(self, algorithms: list[str | None], tried: PreparedCall) -> list[str | None]:
        """From the first that placement and settings allow on: all ranks have the same."""
        for number, algorithm in enumerate(algorithms):
            try:
                self._communication.issue(tried, algorithm=algorithm, wire="full").wait()
            except ConfigError:
                continue
            return algorithms[number:]
        return []

    def __call__(self, bucket: Bucket) -> Handle:
        """See `Averaging`. A parameter is used if any part has used it."""
        self._mode.begin_average(bucket.number)
        for number, slot in enumerate(bucket.slots):
            if self._mode.has(slot.name):
                bucket.flags[number] = 1
        if not self._is_summed_on_the_way(bucket):
            return super().__call__(bucket)
        division = bucket.division
        counts = equal_counts(bucket.buffer.numel(), self._communication.size) if division is None else division.counts
        first = sum(counts[: self._communication.rank])
        self._mode.add_parts(for_mode(bucket), slice(first, first + counts[self._communication.rank]))
        bucket.sent_bytes = bucket.memory.nbytes
        how = bucket.planned.priority
        if division is None:
            prepared = prepared_all_reduce(bucket.memory, self._mode.divisor)
            return self._communication.issue(prepared, priority=how, algorithm=self._algorithms[0], wire="full")
        division.is_partial = True
        prepared = division.scatter(self._mode.divisor)
        scattered = self._communication.issue(prepared, priority=how, algorithm=self._scatters[0], wire="full")
        return BothHandles(scattered, self._communication.issue(bucket.prepared_flags, priority=how))

    def _stages(self, bucket: Bucket, operations: modes.Communication) -> Stages:
        division = bucket.division
        if division is None:
            return super()._stages(bucket, operations)
        division.is_partial = True
        return self._mode.average_share(for_mode(bucket), division.counts, division.averages, operations)

    def operation(self, bucket: Bucket) -> tuple[Op, int]:
        """See `Averaging`."""
        if not self._is_summed_on_the_way(bucket):
            return super().operation(bucket)
        return "avg", bucket.memory.numel() if bucket.division is None else bucket.buffer.numel()

    def _is_summed_on_the_way(self, bucket: Bucket) -> bool:
        """See [Note: Sums on the way]."""
        algorithms = self._algorithms if bucket.division is None else self._scatters
        return self._mode.is_tree_of_ranks and bool(algorithms) and bucket.buffer.dtype in _PRECISE


def _algorithms(ranks: int) -> list[str | None]:
    """The algorithms whose sums are a tree of the ranks, best first; None is any."""
    if ranks <= 2:
        return [None]
    if ranks == 3:  # of which the tree adds one after the other, as two-shot does
        return ["slice-tree", "two-shot"]
    return ["slice-tree", "halving-doubling"] if ranks.bit_count() == 1 else ["slice-tree"]


def _scatters(ranks: int) -> list[str | None]:
    """The same of reduce-scatters."""
    if ranks <= 2:
        return [None]
    return ["slice-tree", "direct"] if ranks == 3 else ["slice-tree"]


def _sum(left: Tensor | None, right: Tensor | None) -> Tensor | None:
    # Into the right one, which may be a bucket's memory: the rightmost part is the last.
    if left is None or right is None:
        return right if left is None else left
    return right.add_(left)
