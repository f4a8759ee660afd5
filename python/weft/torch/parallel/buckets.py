"""Buckets: gradients that lie one behind the other in flat memory, and the state of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from weft.errors import UnsupportedError
from weft.torch.parallel.communication import Communication, prepared_all_reduce
from weft.torch.parallel.gradient import raw_gradient, set_raw_gradient
from weft.torch.parallel.plan import BucketPlan, ParameterInfo, PlannedBucket
from weft.torch.parallel.slot import Brings, Slot, shaped
from weft.torch.patches.tensors import copy_all

if TYPE_CHECKING:
    from weft.api.request import PreparedCall

__all__ = ["Bucket", "Handle", "Update", "make_buckets", "parameter_info"]

_ALIGNMENT = 128


class Update(Protocol):
    """What an optimizer still has to do with some parameters of a bucket."""

    def check(self) -> None:
        """Raises if what it reads or writes has changed since: see [Note: Late changes]."""

    def __call__(self) -> None:
        """Updates them; their gradients have been averaged."""


class Handle(Protocol):
    """An average that has been started."""

    def wait(self) -> object:
        """Returns when `Bucket.memory` holds the average, or raises what went wrong."""


class Bucket:
    """Gradients that are averaged by one operation.

    [Note: Unused parameters] Behind the gradients lies one flag per parameter, 1 where this rank
    has used it, and travels with them. The average of a flag is 0 only if no rank has used the
    parameter. So all ranks know which gradients are nobody's without walking graphs and without an
    operation of its own.
    """

    prepared: PreparedCall
    """The average of `memory`, where that is on the CPU."""
    prepared_flags: PreparedCall

    def __init__(
        self, number: int, planned: PlannedBucket, slots: Sequence[Slot], memory: Tensor, *, is_last: bool
    ) -> None:
        """`memory` has an element for each of the gradients, and one for each slot."""
        self.number = number
        self.planned = planned
        self.is_last = is_last
        """Whether no other one follows in a step."""
        self.slots = list(slots)
        self.memory = memory
        self.buffer = memory[: memory.numel() - len(slots)]
        """The gradients, flat."""
        self.flags = memory[memory.numel() - len(slots) :]
        if memory.is_cpu:
            self.prepared = prepared_all_reduce(memory, "avg")
            self.prepared_flags = prepared_all_reduce(self.flags, "avg")
        self.sent_bytes = 0
        """What this rank has handed over for the last average (in a mode: that has ended)."""
        self.missing = len(slots)
        """How many gradients this backward still has to make."""
        self.small: list[Slot] = []
        """Those whose new gradients are still to be copied, all by one call."""
        self.handle: Handle | None = None
        """The average under way, or one that nobody has waited for yet."""
        self.updates: list[Update] = []
        """Updates that wait for the bucket's first use."""
        start = 0
        for slot in self.slots:
            slot.bucket = self
            part = self.buffer[start : start + slot.parameter.numel()]
            # `data` has a version of its own: see [Note: Late changes].
            slot.view = shaped(part.data, slot.parameter)
            start += slot.parameter.numel()

    def begin(self) -> None:
        """Makes ready for a backward."""
        self.missing = len(self.slots)
        self.small.clear()
        for slot in self.slots:
            slot.fired = 0

    def take_in(self, *slots: Slot) -> None:
        """Puts new gradients into the bucket, and makes them the parameters'."""
        taken, gradients = [], []
        for slot in slots:
            gradient = raw_gradient(slot.parameter)
            if gradient is slot.view or gradient is None:
                continue
            if gradient.layout is not torch.strided:
                raise UnsupportedError(
                    f"the gradient of {slot.name} is sparse ({gradient.layout}): expected a dense one, as of "
                    "Embedding(sparse=False)"
                )
            taken.append(slot)
            gradients.append(gradient)
        if taken:
            copy_all([slot.view for slot in taken], gradients)
        for slot in taken:
            set_raw_gradient(slot.parameter, slot.view)

    def complete(self) -> None:
        """Sets what this rank brings for parameters without a new gradient, and all flags."""
        self.take_in(*self.small)
        self.small.clear()
        self.flags.fill_(1)
        for slot in self.slots:
            if slot.fired:
                slot.brings = Brings.NOTHING
            elif slot.brings is Brings.UNSYNCHRONIZED:
                self.take_in(slot)
                slot.brings = Brings.NOTHING
            else:
                self._bring_nothing(slot)

    def settle(self) -> None:
        """Gives the parameters that this rank has not used what the average says."""
        for number, slot in enumerate(self.slots):
            if slot.brings is not Brings.UNDECIDED:
                continue
            if self.flags[number].item() == 0 and not slot.delivers_late():
                if slot.unchanged is not None:
                    slot.view.data.copy_(slot.unchanged)  # see [Note: Late changes]: raises no version
                    slot.decide(slot.view)
                slot.brings = Brings.NOTHING
            else:
                slot.decide(slot.view)
            slot.unchanged = None

    def _bring_nothing(self, slot: Slot) -> None:
        if slot.brings is Brings.PRESET_ZEROS:
            set_raw_gradient(slot.parameter, None)
        gradient = raw_gradient(slot.parameter)
        slot.brings = Brings.UNDECIDED
        if gradient is None:
            slot.view.zero_()
        else:
            slot.unchanged = gradient.detach().clone()
            self.take_in(slot)
        self.flags[self.slots.index(slot)] = 0


def make_buckets(plan: BucketPlan, slots: Sequence[Slot], communication: Communication) -> list[Bucket]:
    """The buckets of a plan, and the memory in which they lie: one piece for each element type.

    Every rank calls it with the same plan.
    """
    lengths = [_padded(plan, bucket) for bucket in plan.buckets]
    firsts = [slots[bucket.parameters[0]].parameter for bucket in plan.buckets]
    dtypes = [parameter.dtype for parameter in firsts]
    pieces = {
        first.dtype: communication.memory(
            sum(n for n, of in zip(lengths, dtypes, strict=True) if of == first.dtype), first.detach()
        )
        for first in {parameter.dtype: parameter for parameter in firsts}.values()
    }
    used = dict.fromkeys(pieces, 0)
    buckets = []
    for number, (planned, length, dtype) in enumerate(zip(plan.buckets, lengths, dtypes, strict=True)):
        members = [slots[index] for index in planned.parameters]
        needed = sum(slot.parameter.numel() for slot in members) + len(members)
        memory = pieces[dtype][used[dtype] :][:needed]
        buckets.append(Bucket(number, planned, members, memory, is_last=number == len(plan.buckets) - 1))
        used[dtype] += length
    return buckets


def parameter_info(name: str, parameter: Tensor) -> ParameterInfo:
    """What a plan knows of a parameter."""
    return ParameterInfo(name, parameter.numel(), str(parameter.dtype).removeprefix("torch."), parameter.itemsize)


def _padded(plan: BucketPlan, bucket: PlannedBucket) -> int:
    """Elements of gradients and flags, up to the next multiple of what memory is aligned to."""
    infos = [plan.parameters[index] for index in bucket.parameters]
    per_line = max(_ALIGNMENT // infos[0].itemsize, 1)
    return -(-(sum(info.elements for info in infos) + len(infos)) // per_line) * per_line
