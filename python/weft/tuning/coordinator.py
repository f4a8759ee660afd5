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
    """Returns rank 0's value on every rank.

    It may be any value that JSON can express; the others' values are ignored.
    """
    text = json.dumps(value).encode() if group.rank == 0 else b""
    length = int(group.broadcast(np.array([len(text)], np.int64))[0])
    content = np.zeros(length, np.uint8)
    content[: len(text)] = np.frombuffer(text, np.uint8)
    return json.loads(group.broadcast(content).tobytes())


class TuningCoordinator:
    """Measurements that rank 0 requests and every rank carries out.

    Rank 0 calls `measure` any number of times, and `end` once. All others call `follow`, which
    returns the argument of `end`.
    """

    def __init__(self, group: Group, stopwatch: Stopwatch) -> None:
        self._group = group
        self._stopwatch = stopwatch

    def measure(self, probes: Sequence[Probe], seconds: float) -> list[Measurement]:
        """Measures each probe for about `seconds`; those that the group cannot run are left out."""
        self._send({"probes": [dataclasses.asdict(probe) for probe in probes], "seconds": seconds})
        return self._measure_all(probes, seconds)

    def end(self, value: Any) -> Any:
        """Sends the other ranks the outcome, which ends their part."""
        self._send({"outcome": value})
        return value

    def follow(self) -> Any:
        """Carries out rank 0's requests until the end."""
        while True:
            request = agree(self._group, None)
            if "outcome" in request:
                return request["outcome"]
            self._measure_all([Probe(**probe) for probe in request["probes"]], request["seconds"])

    def _measure_all(self, probes: Sequence[Probe], seconds: float) -> list[Measurement]:
        return self._stopwatch.measure_all([probe for probe in probes if self._stopwatch.runs(probe)], seconds)

    def _send(self, what: dict[str, Any]) -> None:
        agree(self._group, what)
