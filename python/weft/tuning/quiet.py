"""The load of a machine during a measurement: busy cores, and the spread of times."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from weft.api.group import Group
from weft.tuning.stopwatch import Measurement

__all__ = ["Conditions", "busy_cores", "busy_seconds", "load", "spread"]

BUSY_CORES_MAX = 0.2
"""Cores of each host that other processes use while all ranks sleep."""
SPREAD_MAX = 0.6
"""On a quiet machine the middle half of a call's times is within a tenth or two of the median;
beside other work it spreads over several tenths."""
_LOOK_S = 1.0
_SAMPLES_MIN = 8
_HERTZ = 100.0
"""The interval of the kernel's counters of processor time."""


@dataclasses.dataclass(frozen=True)
class Conditions:
    """The load of the machine."""

    busy_cores: float
    """Cores of the busiest host that were used while all ranks slept."""
    spread: float
    """The interquartile range of a call's times by their median: the median over all measurements.
    """

    @property
    def problem(self) -> str | None:
        """The reason to distrust the measurement; None if there is none."""
        problems = []
        if self.busy_cores > BUSY_CORES_MAX:
            problems.append(f"{self.busy_cores:.1f} cores were busy with something else (allowed: {BUSY_CORES_MAX:g})")
        if self.spread > SPREAD_MAX:
            problems.append(f"calls' times spread by {self.spread:.0%} of their median (allowed: {SPREAD_MAX:.0%})")
        return " and ".join(problems) or None


def load(group: Group, seconds: float = _LOOK_S) -> float:
    """The cores that other processes use on the busiest host. Every rank calls it, and sleeps."""
    group.barrier()
    return float(group.all_reduce(np.array([busy_cores(seconds)]), "max")[0])


def busy_cores(seconds: float) -> float:
    """The cores of this host that others use while this thread sleeps."""
    begin, cores = time.monotonic(), busy_seconds()
    time.sleep(seconds)
    return (busy_seconds() - cores) / (time.monotonic() - begin)


def busy_seconds(root: Path = Path("/")) -> float:
    """The seconds that this machine's cores have been busy since it was started, added up."""
    fields = [int(word) for word in (root / "proc/stat").read_text().splitlines()[0].split()[1:]]
    idle = fields[3] + fields[4]
    # User time includes guests' time.
    return (sum(fields[:8]) - idle) / _HERTZ


def spread(measured: Sequence[Measurement]) -> float:
    """The typical spread of a call's times; 0 if nothing was measured often enough."""
    shares = []
    for one in measured:
        if len(one.seconds) >= _SAMPLES_MIN:
            low, middle, high = np.quantile(one.seconds, [0.25, 0.5, 0.75])
            shares.append(float((high - low) / middle) if middle > 0 else 0.0)
    return float(np.median(shares)) if shares else 0.0
