"""Coordination of a group's measurements by rank 0, and broadcast of one choice to all ranks."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.api.group import Group
from weft.tuning.stopwatch import Measurement, Probe, Stopwatch

__all__ = ["TuningCoordinator", "agree"]


def agree(group: Group, value: Any) -> Any:
    """Rank 0's value, on every rank.

    Anything that JSON can express; the others' values are not looked at.
    """
    text = json.dumps(value).encode() if group.rank == 0 else b""
    length = int(group.broadcast(np.array([len(text)], np.int64))[0])
    content = np.zeros(length, np.uint8)
    content[: len(text)] = np.frombuffer(text, np.uint8)
    return json.loads(group.broadcast(content).tobytes())


class TuningCoordinator:
    """What rank 0 asks for, every rank measures.

    Rank 0 calls `measure` as often as it likes, and `end` once; all others call `follow`, which
    returns what `end` was given.
    """

    def __init__(self, group: Group, stopwatch: Stopwatch) -> None:
        self._group = group
        self._stopwatch = stopwatch

    def measure(self, probes: Sequence[Probe], seconds: float) -> list[Measurement]:
        """Measures each for about `seconds`; what the group cannot run is left out."""
        self._tell({"probes": [dataclasses.asdict(probe) for probe in probes], "seconds": seconds})
        return self._measure_all(probes, seconds)

    def end(self, value: Any) -> Any:
        """Tells the other ranks that this was all, and the outcome."""
        self._tell({"outcome": value})
        return value

    def follow(self) -> Any:
        """Does what rank 0 says, until the end."""
        while True:
            told = agree(self._group, None)
            if "outcome" in told:
                return told["outcome"]
            self._measure_all([Probe(**probe) for probe in told["probes"]], told["seconds"])

    def _measure_all(self, probes: Sequence[Probe], seconds: float) -> list[Measurement]:
        return self._stopwatch.measure_all([probe for probe in probes if self._stopwatch.runs(probe)], seconds)

    def _tell(self, what: dict[str, Any]) -> None:
        agree(self._group, what)
