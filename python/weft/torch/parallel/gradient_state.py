"""The state of a parameter's gradient between backwards, and between a step and its update."""

from __future__ import annotations

import enum

__all__ = ["Brings", "Holder"]


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
