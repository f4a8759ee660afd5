"""Priorities of operations of `torch.distributed`: of a process group, and of a block of code."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from torch.distributed import ProcessGroup

from weft.errors import ArgumentError
from weft.torch.lookup import backend_of

__all__ = ["keywords", "priority", "set_priority"]

_LEVELS = range(-(2**31), 2**31)

_within: ContextVar[int | None] = ContextVar("weft priority", default=None)


@contextlib.contextmanager
def priority(level: int) -> Iterator[None]:
    """Gives this priority to the operations that this thread starts within the block.

    Operations with a higher priority go first, also past ones that are under way. All ranks start
    an operation with the same priority. The default is that of the process group, see
    `set_priority`. Operations that torch starts on other threads, such as those of a backward
    pass under DDP, have their group's.

    Args:
        level: Any 32-bit integer; 0 is the default of groups.

    Raises:
        weft.ArgumentError: The level is not a 32-bit integer.
    """
    token = _within.set(_checked(level))
    try:
        yield
    finally:
        _within.reset(token)


def set_priority(level: int, group: ProcessGroup | None = None) -> None:
    """Gives this priority to the later operations of a process group.

    All ranks of the group call it, between the same operations.

    Args:
        level: Any 32-bit integer; operations with a higher priority go first. 0 until it is called.
        group: The process group; the default group if not given. Its backend for the CPU is weft.

    Raises:
        weft.ArgumentError: The level is not a 32-bit integer, the group's backend for the CPU is
            not weft, or this rank is not in it.
    """
    backend_of(group).weft_operations.priority = _checked(level)


def keywords(default: int) -> dict[str, int]:
    """What an operation that this thread starts in a group with this default is called with."""
    level = _within.get()
    if level is None:
        level = default
    return {"priority": level} if level else {}


def _checked(level: int) -> int:
    if isinstance(level, bool) or not isinstance(level, int) or level not in _LEVELS:
        raise ArgumentError(f"priority={level!r}: expected an integer of 32 bits")
    return level
