"""Buckets: gradients one after the other in flat memory, and the state of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from weft.errors import UnsupportedError
from weft.torch.parallel.communication import Communication, prepared_all_reduce
from weft.torch.parallel.gradient import raw_gradient, set_raw_gradient
from weft.torch.parallel.gradient_state import Brings, Holder
from weft.torch.parallel.plan import BucketPlan, ParameterInfo, PlannedBucket
from weft.torch.patches.tensors import copy_all

if TYPE_CHECKING:
    from weft.api.request import PreparedCall
    from weft.datatypes.ops import AverageOf, Op

__all__ = ["Bucket", "Handle", "Shares", "Slot", "Update", "make_buckets", "parameter_info", "shaped"]

_ALIGNMENT = 128
_TENSOR_ALIGNMENT = 64
"""That of torch's own memory. The bits of matrix products depend on it."""
_LARGE_ELEMENTS = 16 << 10


class Update(Protocol):
    """An optimizer's pending work on some parameters of a bucket."""

    def check(self) -> None:
        """Raises if its inputs or outputs have changed: see [Note: Late changes]."""

    def wait(self) -> None:
        """Waits for parts that other threads and ranks carry out; raises their errors."""

    def __call__(self) -> None:
        """Updates them; their gradients have been averaged."""


class Handle(Protocol):
    """An average that has been started."""

    def wait(self) -> object:
        """Returns when `Bucket.memory` has the average, or raises the error."""


class Shares(Protocol):
    """The division of a bucket: see `weft.torch.parallel.divided`."""

    is_partial: bool
    """Whether the bucket has this rank's own gradients outside of its share."""
    averages: Tensor
    """The averaged gradients of this rank's share."""
    gather_gradients: PreparedCall
    """An all-gather of averages."""
    complete_parameters: PreparedCall
    """After the update of the share: all parameters are here when it ends."""
    pieces: Mapping[Slot, Any]
    """The parts of parameters that this rank updates."""
    owners: Mapping[Slot, list[int]]
    """How many elements of each parameter each rank updates."""
    counts: list[int]
    """How many elements each rank updates."""

    def scatter(self, op: Op | AverageOf) -> PreparedCall:
        """A reduce-scatter of the bucket's gradients to `averages`."""

    def hold_parameters(self) -> None:
        """Moves the parameters into the division's memory, if they are elsewhere."""

    def updating(self) -> AbstractContextManager[None]:
        """A block in which the thread updates the share."""

    def updated(self) -> None:
        """An update was carried out, and the parameters' versions were raised."""

    def take_from_bucket(self) -> None:
        """Makes the bucket's gradients, which are complete, the averages of the share."""

    def take_gradient(self, slot: Slot, gradient: Tensor) -> None:
        """Makes another gradient, which is the same on all ranks, the average."""


class Slot:
    """A parameter's place in a bucket, and the state of its gradient."""

    __slots__ = (
        "brings",
        "bucket",
        "expected",
        "fired",
        "hidden",
        "holder",
        "index",
        "is_large",
        "name",
        "parameter",
        "placed",
        "taken_gradient",
        "unchanged",
        "view",
    )

    bucket: Bucket
    view: Tensor
    """The parameter's part of the bucket, with the parameter's shape."""

    def __init__(self, index: int, name: str, parameter: nn.Parameter) -> None:
        self.index = index
        self.name = name
        self.parameter = parameter
        self.is_large = parameter.numel() >= _LARGE_ELEMENTS
        """Whether its gradient is copied when it is made, so that its own memory is free again."""
        self.fired = 0
        """How often autograd has given it a gradient in this backward."""
        self.expected = 1
        """How often it does in a backward: more than once under reentrant checkpointing."""
        self.placed = False
        """Whether this backward computes its gradient in the bucket."""
        self.brings = Brings.NOTHING
        self.hidden = False
        """Whether its gradient is its part of the bucket, which is not complete: see `hide`."""
        self.unchanged: Tensor | None = None
        """Its gradient before an average of which it is undecided, if no rank has used it."""
        self.holder = Holder.PARAMETER
        self.taken_gradient: Tensor | None = None
        """The gradient that an update has taken."""

    @property
    def is_aligned(self) -> bool:
        """Whether its part of the bucket is aligned as torch's own memory is."""
        return self.view.data_ptr() % _TENSOR_ALIGNMENT == 0

    @property
    def is_taken(self) -> bool:
        """Whether its gradient belongs to an update that is still to come."""
        return self.holder is not Holder.PARAMETER

    @property
    def gradient(self) -> Tensor | None:
        """The parameter's gradient, without waiting; also if it is hidden."""
        return self.view if self.hidden else raw_gradient(self.parameter)

    @property
    def has_share(self) -> bool:
        """Whether its gradient is an average in this rank's share only, and its own outside."""
        return self.bucket.is_partial and self.gradient is self.view

    def take_gradient(self) -> bool:
        """Keeps the gradient for a later update, if there is or may be one, and says so."""
        self.show()
        gradient = raw_gradient(self.parameter)
        if gradient is None and self.brings is not Brings.UNDECIDED:
            return False
        self.holder, self.taken_gradient = Holder.UPDATE, gradient
        set_raw_gradient(self.parameter, None)
        return True

    def end_update(self, gradient_since: Tensor | None) -> None:
        """Ends what `take_gradient` began; the parameter had `gradient_since` before the update."""
        if self.holder is Holder.UPDATE_ALONE:
            set_raw_gradient(self.parameter, gradient_since)
        self.holder, self.taken_gradient = Holder.PARAMETER, None

    def decide(self, gradient: Tensor | None) -> None:
        """Gives the parameter, or the update that has taken its gradient, this one."""
        self.brings = Brings.NOTHING
        if self.is_taken:
            self.taken_gradient = gradient
        else:
            set_raw_gradient(self.parameter, gradient)

    def delivers_late(self) -> bool:
        """Whether the average is of earlier steps, as modes deliver it, and not what was brought.

        Modes keep what they have not sent by parameter, and deliver it also in a step in which
        no rank uses the parameter.
        """
        brought = self.unchanged is not None and bool(self.unchanged.count_nonzero())
        return not brought and bool(self.view.count_nonzero())

    def deliver(self, gradient: Tensor) -> None:
        """Gives the parameter this gradient, which is flat, as in its bucket."""
        self.view.copy_(shaped(gradient, self.parameter))
        self.decide(self.view)

    def hide(self) -> None:
        """Hides the gradient from autograd, which must not add to an average before its end.

        A backward that no output of the model announces would, such as that of another loss.
        """
        if raw_gradient(self.parameter) is self.view:
            self.hidden = True
            set_raw_gradient(self.parameter, None)

    def show(self) -> None:
        """Ends what `hide` began."""
        if self.hidden:
            self.hidden = False
            set_raw_gradient(self.parameter, self.view)

    def drop_gradient(self) -> None:
        """The user's wish to have no gradient any more; an update that has taken it keeps it."""
        self.hidden = False
        if self.is_taken:
            self.holder = Holder.UPDATE_ALONE
        else:
            self.brings = Brings.NOTHING
        set_raw_gradient(self.parameter, None)

    def forget(self) -> None:
        """Drops the gradient, also from an update that has taken it."""
        self.brings, self.holder, self.hidden = Brings.NOTHING, Holder.PARAMETER, False
        self.taken_gradient = self.unchanged = None
        set_raw_gradient(self.parameter, None)


class Bucket:
    """Gradients that are averaged by one operation.

    [Note: Unused parameters] After the gradients there is one flag per parameter, 1 if this rank
    has used it, which is sent with them. The average of a flag is 0 only if no rank has used the
    parameter. So all ranks know which gradients no rank has, without walking graphs and without an
    additional operation.
    """

    prepared: PreparedCall
    """The average of `memory`, if that is on the CPU."""
    prepared_flags: PreparedCall

    def __init__(
        self, number: int, planned: PlannedBucket, slots: Sequence[Slot], memory: Tensor, *, is_last: bool
    ) -> None:
        """`memory` has an element for each of the gradients, and one for each slot."""
        self.number = number
        self.planned = planned
        self.is_last = is_last
        """Whether it is the last one of a step."""
        self.slots = list(slots)
        self.memory = memory
        self.buffer = memory[: memory.numel() - len(slots)]
        """The gradients, flat."""
        self.flags = memory[memory.numel() - len(slots) :]
        if memory.is_cpu:
            self.prepared = prepared_all_reduce(memory, "avg")
            self.prepared_flags = prepared_all_reduce(self.flags, "avg")
        self.sent_bytes = 0
        """Bytes that this rank has sent for the last average (in a mode: the last one that has
        ended).
        """
        self.missing = len(slots)
        """How many gradients this backward still has to compute."""
        self.small: list[Slot] = []
        """The slots whose new gradients are still to be copied, all by one call."""
        self.division: Shares | None = None
        """The shares that the ranks update; None if every rank updates all."""
        self.handle: Handle | None = None
        """The average under way, or one that was not waited for yet."""
        self.updates: list[Update] = []
        """Updates that wait for the bucket's first use."""
        start = 0
        for slot in self.slots:
            slot.bucket = self
            part = self.buffer[start : start + slot.parameter.numel()]
            # `data` has a version of its own: see [Note: Late changes].
            slot.view = shaped(part.data, slot.parameter)
            start += slot.parameter.numel()

    @property
    def is_partial(self) -> bool:
        """Whether this rank has the average of its share only."""
        return self.division is not None and self.division.is_partial

    def begin(self) -> None:
        """Prepares for a backward."""
        if self.division is not None:
            self.division.is_partial = False
        self.missing = len(self.slots)
        self.small.clear()
        for slot in self.slots:
            slot.fired, slot.placed = 0, False

    def take_in(self, *slots: Slot) -> None:
        """Copies new gradients into the bucket, and makes the parameters' gradients its parts."""
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
            if slot.placed and gradient.data_ptr() == slot.view.data_ptr():
                set_raw_gradient(slot.parameter, slot.view)
                continue
            taken.append(slot)
            gradients.append(gradient)
        if taken:
            copy_all([slot.view for slot in taken], gradients)
        for slot in taken:
            set_raw_gradient(slot.parameter, slot.view)

    def complete(self) -> None:
        """Sets this rank's contribution for parameters without a new gradient, and all flags."""
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
        """Sets the gradients of parameters that this rank has not used, as the average says."""
        for number, slot in enumerate(self.slots):
            if slot.brings is Brings.UNDECIDED:
                self._decide(slot, has_used=bool(self.flags[number].item()))
            if self.is_partial:
                slot.hide()
            else:
                slot.show()
            slot.unchanged = None  # the user may have dropped the gradient meanwhile

    def _decide(self, slot: Slot, *, has_used: bool) -> None:
        """Sets the gradient of one; `has_used` says whether any rank has used it."""
        if has_used or slot.delivers_late():
            slot.decide(slot.view)
            return
        if slot.unchanged is not None:
            slot.view.data.copy_(slot.unchanged)  # see [Note: Late changes]: raises no version
            slot.decide(slot.view)
            if self.division is not None:
                self.division.take_gradient(slot, slot.unchanged)
        slot.brings = Brings.NOTHING

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
    """The buckets of a plan, and their memory: one piece for each element type.

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
        # Those that end where the next may begin come first, so that they are aligned.
        members = sorted((slots[index] for index in planned.parameters), key=_breaks_alignment)
        needed = sum(slot.parameter.numel() for slot in members) + len(members)
        memory = pieces[dtype][used[dtype] :][:needed]
        buckets.append(Bucket(number, planned, members, memory, is_last=number == len(plan.buckets) - 1))
        used[dtype] += length
    return buckets


def parameter_info(name: str, parameter: Tensor) -> ParameterInfo:
    """The properties of a parameter in a plan."""
    return ParameterInfo(name, parameter.numel(), str(parameter.dtype).removeprefix("torch."), parameter.itemsize)


def _breaks_alignment(slot: Slot) -> bool:
    return slot.parameter.nbytes % _TENSOR_ALIGNMENT != 0


def _padded(plan: BucketPlan, bucket: PlannedBucket) -> int:
    """Elements of gradients and flags, up to the next multiple of the alignment of memory."""
    infos = [plan.parameters[index] for index in bucket.parameters]
    per_line = max(_ALIGNMENT // infos[0].itemsize, 1)
    return -(-(sum(info.elements for info in infos) + len(infos)) // per_line) * per_line


def shaped(flat: Tensor, parameter: Tensor) -> Tensor:
    """The vector with the parameter's shape, and with its order of dimensions where that is dense.

    Autograd then hands over gradients in the same order.
    """
    strides: tuple[int, ...] = parameter.stride()
    shape: tuple[int, ...] = tuple(parameter.shape)
    order = sorted(range(len(shape)), key=lambda d: (-strides[d], -shape[d]))
    sizes = [shape[d] for d in order]
    dense = all(strides[d] == prod(sizes[place + 1 :]) for place, d in enumerate(order) if sizes[place] != 1)
    if not dense:
        return flat.view(shape)
    return flat.view(sizes).permute([order.index(d) for d in range(len(shape))])
