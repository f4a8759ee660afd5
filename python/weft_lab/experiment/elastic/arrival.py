"""Bytes that arrive on the line of a host while a process there joins."""

from __future__ import annotations

import time
from pathlib import Path

from weft_lab.emulation.network import INTERFACE

__all__ = ["Arrival"]

_DEVICES = Path("/proc/net/dev")
_MIDDLE = 0.05, 0.95
"""The shares of the bytes between which the line's use is measured."""


class Arrival:
    """How many bytes the host had received, at many moments."""

    def __init__(self) -> None:
        """Begins with this moment."""
        self._samples: list[tuple[float, int]] = []
        self.look()

    def look(self) -> None:
        """Notes this moment."""
        self.note(time.monotonic(), _received_bytes())

    def note(self, at: float, nbytes: int) -> None:
        """Notes a moment, and what was received by then."""
        self._samples.append((at, nbytes))

    def middle(self) -> tuple[float, float, int]:
        """When the middle 90 % of the bytes began and ended to arrive, and how many these are."""
        first, last = self._samples[0][1], self._samples[-1][1]
        low, high = (first + share * (last - first) for share in _MIDDLE)
        begin = max((one for one in self._samples if one[1] <= low), default=self._samples[0])
        end = min(one for one in self._samples if one[1] >= high)
        return begin[0], end[0], end[1] - begin[1]


def _received_bytes() -> int:
    """Of this host's line, since it was made."""
    for line in _DEVICES.read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == INTERFACE:
            return int(counters.split()[0])
    return 0
