"""A parameter's place in a bucket, and the state of its gradient."""

from __future__ import annotations

import enum
from math import prod
from typing import TYPE_CHECKING

from torch import Tensor, nn

from weft.torch.parallel.gradient import raw_gradient, set_raw_gradient

if TYPE_CHECKING:
    from weft.torch.parallel.buckets import Bucket

__all__ = ["Brings", "Slot", "shaped"]

_LARGE_ELEMENTS = 16 << 10


class Brings(enum.Enum):
    """The contribution of a parameter to an average if its backward makes no gradient."""

    NOTHING = enum.auto()
    """Its gradient, if it has one, is of an earlier step or the user's."""
    UNSYNCHRONIZED = enum.auto()
    """A gradient of backwards without synchronization."""
    PRESET_ZEROS = enum.auto()
    """Zeros that were put there for autograd to add to."""
    UNDECIDED = enum.auto()
    """Nothing; the average decides whether another rank used it: see [Note: Unused parameters]."""


class Holder(enum.Enum):
    """The holder of a gradient between `step()` and the update."""

    PARAMETER = enum.auto()
    """No update has taken it."""
    UPDATE = enum.auto()
    """An update that is still to come, which gives it back."""
    UPDATE_ALONE = enum.auto()
    """The same, and the user has dropped it since: the parameter does not get it back."""


class Slot:
    """A parameter's place in a bucket, and the state of its gradient."""

    __slots__ = (
        "brings",
        "bucket",
        "expected",
        "fired",
        "holder",
        "index",
        "is_large",
        "name",
        "parameter",
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
        self.brings = Brings.NOTHING
        self.unchanged: Tensor | None = None
        """Its gradient before an average of which it is undecided, if no rank has used it."""
        self.holder = Holder.PARAMETER
        self.taken_gradient: Tensor | None = None
        """The gradient that an update has taken."""

    @property
    def is_taken(self) -> bool:
        """Whether its gradient belongs to an update that is still to come."""
        return self.holder is not Holder.PARAMETER

    def take_gradient(self) -> bool:
        """Keeps the gradient for a later update, if there is or may be one, and says so."""
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

    def drop_gradient(self) -> None:
        """The user's wish to have no gradient any more; an update that has taken it keeps it."""
        if self.is_taken:
            self.holder = Holder.UPDATE_ALONE
        else:
            self.brings = Brings.NOTHING
        set_raw_gradient(self.parameter, None)

    def forget(self) -> None:
        """Drops the gradient, also from an update that has taken it."""
        self.brings, self.holder, self.taken_gradient = Brings.NOTHING, Holder.PARAMETER, None
        set_raw_gradient(self.parameter, None)


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
