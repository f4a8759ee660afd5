"""Priorities of operations of `torch.distributed`: of a process group, and of a block of code."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch.distributed import ProcessGroup

from weft.errors import ArgumentError
from weft.torch.call_context import within_block
from weft.torch.lookup import backend_of

__all__ = ["priority", "set_priority"]

_LEVELS = range(-(2**31), 2**31)


@contextlib.contextmanager
def priority(level: int) -> Iterator[None]:
    """Sets the priority of the operations that this thread starts in the block.

    Operations with a higher priority go first and overtake those under way. All ranks start an
    operation with the same priority. The default is that of the process group, see `set_priority`.
    Operations that torch starts on other threads, such as those of a backward pass under DDP, have
    their group's.

    Args:
        level: Any 32-bit integer; 0 is the default of groups.

    Raises:
        weft.ArgumentError: The level is not a 32-bit integer.

    Examples:
        >>> with weft.torch.priority(1):
        ...     dist.all_reduce(tensor)  # overtakes operations with priority 0
    """
    with within_block(priority=_checked(level)):
        yield


def set_priority(level: int, group: ProcessGroup | None = None) -> None:
    """Sets the priority of later operations of a process group.

    All ranks of the group call it, between the same operations.

    Args:
        level: Any 32-bit integer; operations with a higher priority go first. 0 until it is called.
        group: The process group; the default group if not given. Its backend for the CPU is weft.

    Raises:
        weft.ArgumentError: The level is not a 32-bit integer, the group's backend for the CPU is
            not weft, or this rank is not in it.

    Examples:
        >>> group = dist.new_group(backend="weft")
        >>> weft.torch.set_priority(1, group)  # on every rank
    """
    backend_of(group).weft_operations.keywords = {"priority": _checked(level)}


def _checked(level: int) -> int:
    if isinstance(level, bool) or not isinstance(level, int) or level not in _LEVELS:
        raise ArgumentError(f"priority={level!r}: expected an integer of 32 bits")
    return level
