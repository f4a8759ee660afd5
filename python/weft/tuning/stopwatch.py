"""Times calls of collectives on a running group."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

import numpy as np

from weft.collectives import How
from weft.errors import ConfigError, UnsupportedError
from weft.group import Group

__all__ = ["LONG_S", "Measurement", "Probe", "Stopwatch"]

LONG_S = 0.25
"""Against calls as long as this, what the first one does once is nothing."""


@dataclasses.dataclass(frozen=True)
class Probe:
    """One collective at one size, by one algorithm."""

    collective: str
    algorithm: str
    bytes: int
    """Of the whole message; rounded down to a whole number of elements per rank where there are blocks."""
    tile_bytes: int | None = None
    tiles_in_flight: int | None = None


@dataclasses.dataclass(frozen=True)
class Measurement:
    """The times of a probe's calls. A call's time is that of the rank which took longest, from a barrier on."""

    probe: Probe
    seconds: list[float]

    @property
    def median_s(self) -> float:
        """The typical time."""
        return float(np.median(self.seconds))


class Stopwatch:
    """One rank's side. Every rank makes one, and the same calls of it."""

    def __init__(self, group: Group, bytes_max: int) -> None:
        elements = max(bytes_max // _DTYPE.itemsize, group.size)
        self._group = group
        self._input = np.zeros(elements, _DTYPE)
        self._output = np.zeros(elements, _DTYPE)
        # Written, not only reserved: memory that nobody has written is no memory yet.
        self._fill = np.full(elements, 0, _DTYPE)
        self._input[:], self._output[:] = self._fill, self._fill

    def measure(self, probe: Probe, seconds: float, calls_min: int = 3, calls_max: int = 400) -> Measurement:
        """Calls until about `seconds` are spent, and within the numbers of calls.

        Every call begins with a barrier, after the rank has written its whole input. The first call, which makes the
        plan and grants memory, counts only if it takes long: then it is the only one.
        """
        call, source = self._call(probe)
        first = self._slowest(np.array([self._timed(call, source)]))
        if first[0] > max(seconds, LONG_S):
            return Measurement(probe, first.tolist())
        trial = self._slowest(np.array([self._timed(call, source)]))[0]
        calls = int(min(max(seconds / max(trial, 1e-7), calls_min), calls_max))
        times = np.array([self._timed(call, source) for _ in range(calls)])
        return Measurement(probe, self._slowest(times).tolist())

    def measure_all(self, probes: Sequence[Probe], seconds: float) -> list[Measurement]:
        """Measures each for about `seconds`; what the group cannot run is left out."""
        return [self.measure(probe, seconds) for probe in probes if self.runs(probe)]

    def runs(self, probe: Probe) -> bool:
        """Whether the group can run it. The same on every rank, because the choice depends on what all know alike."""
        try:
            self._call(probe)[0]()
        except (ConfigError, UnsupportedError):
            return False
        return True

    def _timed(self, call: Callable[[], object], source: np.ndarray) -> float:
        np.copyto(source, self._fill[: len(source)])
        self._group.barrier()
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin

    def _slowest(self, times: np.ndarray) -> np.ndarray:
        """For every call, the time of the rank that took longest."""
        return self._group.all_reduce(times, "max")

    def _call(self, probe: Probe) -> tuple[Callable[[], object], np.ndarray]:
        group = self._group
        how: How = {"algorithm": probe.algorithm}
        block = max(1, probe.bytes // _DTYPE.itemsize // group.size)
        whole = max(1, probe.bytes // _DTYPE.itemsize)
        message, share = self._input[:whole], self._input[:block]
        blocks, into = self._input[: block * group.size], self._output[: block * group.size]
        calls: dict[str, tuple[Callable[[], object], np.ndarray]] = {
            "barrier": (group.barrier, message[:0]),
            "all-reduce": (lambda: group.all_reduce(message, **how), message),
            "reduce": (lambda: group.reduce(message, 0, **how), message),
            "broadcast": (lambda: group.broadcast(message, 0, **how), message),
            "all-gather": (lambda: group.all_gather_into(into, share, **how), share),
            "reduce-scatter": (lambda: group.reduce_scatter(self._output[:block], blocks, **how), blocks),
            "all-to-all": (lambda: group.all_to_all(into, blocks, **how), blocks),
            "gather": (lambda: group.gather(share, 0, into if group.rank == 0 else None, **how), share),
            "scatter": (
                lambda: group.scatter(self._output[:block], blocks if group.rank == 0 else None, 0, **how),
                blocks,
            ),
        }
        if probe.collective not in calls:
            raise ConfigError(f"{probe.collective!r} cannot be measured: expected one of {', '.join(calls)}")
        return calls[probe.collective]


_DTYPE = np.dtype(np.float32)
