"""Clocks: the number of pushes of each worker to a piece or a table.

A worker numbers its pushes from 1. A worker that joins late starts at the clock of the slowest
member, on each piece separately, so servers need not agree on the time of joining; on two pieces
these differ by at most one round. Numbers of workers that have left are kept, so that a push that
is repeated after a new connection is not applied again.
"""

from __future__ import annotations

from typing import Any

from weft.errors import ArgumentError
from weft.torch.parameter_server import parsing
from weft.torch.parameter_server.errors import LostPush

__all__ = ["Clocks"]

_KEPT = 1024
"""The number of workers that have left whose numbers are kept."""


class Clocks:
    """The clocks of one piece or table."""

    def __init__(self) -> None:
        self.pushes: dict[str, int] = {}
        """By worker, the number of its last push; the one that pushed last is last."""
        self._offsets: dict[str, int] = {}
        """By member, its clock when it joined, without its own pushes."""
        self._floor = 0
        """The slowest clock so far."""

    def join(self, worker: str) -> None:
        """Makes a worker a member that starts at the clock of the slowest one."""
        self.pushes.setdefault(worker, 0)
        self._offsets[worker] = self.slowest() - self.pushes[worker]

    @property
    def members(self) -> set[str]:
        """The workers that are waited for."""
        return set(self._offsets)

    def leave(self, worker: str) -> None:
        """Stops waiting for a worker."""
        self._floor = self.slowest()
        self._offsets.pop(worker, None)
        gone = [name for name in self.pushes if name not in self._offsets]
        for name in gone[: max(0, len(gone) - _KEPT)]:
            del self.pushes[name]

    def is_repeated(self, worker: str, number: int) -> bool:
        """Whether this push has been applied already.

        Raises:
            LostPush: An earlier push is missing.
        """
        last = self.pushes.get(worker, 0)
        if number > last + 1:
            raise LostPush(f"push {number} of worker {worker}: push {last + 1} has not arrived")
        return number <= last

    def push(self, worker: str) -> int:
        """Counts a push of a member; returns its clock."""
        number = self.pushes.pop(worker, 0) + 1
        self.pushes[worker] = number
        return self._offsets[worker] + number

    def clock(self, worker: str) -> int:
        """The clock of a member: the round in which its last push counts."""
        return self._offsets[worker] + self.pushes[worker]

    def slowest(self) -> int:
        """The smallest clock of all members; the last known one without members."""
        clocks = [offset + self.pushes[worker] for worker, offset in self._offsets.items()]
        self._floor = max(self._floor, min(clocks, default=self._floor))
        return self._floor

    def may_read(self, worker: str, number: int, staleness: int | None) -> bool:
        """Whether a member may have values after its push `number`.

        That push must have arrived, and no member be more than `staleness` pushes behind (None:
        any).
        """
        if worker not in self._offsets or self.pushes[worker] < number:
            return False
        return staleness is None or self._offsets[worker] + number - self.slowest() <= staleness

    def to_value(self) -> dict[str, Any]:
        """A copy for JSON."""
        return {"pushes": dict(self.pushes), "offsets": dict(self._offsets), "floor": self._floor}

    @staticmethod
    def from_value(value: Any) -> Clocks:
        """Parses the result of `to_value`.

        Raises:
            weft.ArgumentError: It is malformed.
        """
        clocks = Clocks()
        fields = parsing.mapping(value, "clocks", ("pushes", "offsets", "floor"))
        pushes, offsets = parsing.mapping(fields["pushes"], "pushes"), parsing.mapping(fields["offsets"], "offsets")
        clocks.pushes = {worker: parsing.whole(number, "pushes") for worker, number in pushes.items()}
        clocks._offsets = {
            worker: parsing.whole(offset, "offsets", -parsing.WHOLE_MAX) for worker, offset in offsets.items()
        }
        clocks._floor = parsing.whole(fields["floor"], "floor", -parsing.WHOLE_MAX)
        if missing := set(clocks._offsets) - set(clocks.pushes):
            raise ArgumentError(f"clocks without pushes of {parsing.short(sorted(missing))}")
        return clocks
