"""An event of a stream, and its reuse."""

from __future__ import annotations

__all__ = ["Event"]


class Event:
    """An event that returns to its queues when the last reference to it is dropped."""

    __slots__ = ("_unused", "handle")

    def __init__(self, handle: int, unused: list[int]) -> None:
        self.handle = handle
        self._unused = unused

    def __del__(self) -> None:
        self._unused.append(self.handle)
