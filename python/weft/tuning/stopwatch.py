"""Timing of collectives on a running group."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

import numpy as np

from weft.api import calls
from weft.api.calls import RankInGroup
from weft.api.collectives import CallKeywords
from weft.api.group import Group
from weft.api.request import PreparedCall
from weft.errors import ConfigError, UnsupportedError

__all__ = ["LONG_S", "Measurement", "Probe", "Stopwatch"]

LONG_S = 0.25
"""Next to calls as long as this, the one-time work of the first call is negligible."""


@dataclasses.dataclass(frozen=True)
class Probe:
    """One collective at one size, by one algorithm."""

    collective: str
    algorithm: str
    bytes: int
    """The size of the whole message, rounded down to a whole number of elements per rank if there
    are blocks.
    """
    tile_bytes: int | None = None
    tiles_in_flight: int | None = None


@dataclasses.dataclass(frozen=True)
class Measurement:
    """The times of a probe's calls.

    A call's time is that of the slowest rank, from a barrier on.
    """

    probe: Probe
    seconds: list[float]

    @property
    def median_s(self) -> float:
        """The typical time."""
        return float(np.median(self.seconds))


class Stopwatch:
    """One rank's side. Every rank makes one, and makes the same calls of it."""

    def __init__(self, group: Group, bytes_max: int, rest_s: float = 0.0) -> None:
        """`rest_s`: seconds without work before every call."""
        elements = max(bytes_max // _DTYPE.itemsize, group.size)
        self._group = group
        self._rest_s = rest_s
        self._input = np.zeros(elements, _DTYPE)
        self._output = np.zeros(elements, _DTYPE)
        # Written, not only reserved: pages that were never written are not mapped yet.
        self._fill = np.full(elements, 0, _DTYPE)
        self._input[:], self._output[:] = self._fill, self._fill

    def measure(self, probe: Probe, seconds: float, calls_min: int = 3, calls_max: int = 400) -> Measurement:
        """Calls until about `seconds` have passed, within the bounds of the number of calls.

        Every call begins with a barrier, after the rank has written its whole input and output. The
        first call, which makes the plan and grants memory, counts only if it takes long: then it is
        the only one.
        """
        return self._together([probe], seconds, calls_min, calls_max)[0]

    def measure_all(self, probes: Sequence[Probe], seconds: float) -> list[Measurement]:
        """Measures each as `measure` does, one call of each in turn.

        If the machine is slow for a while, all are affected.
        """
        return self._together(probes, seconds, calls_min=3, calls_max=400)

    def _together(self, probes: Sequence[Probe], seconds: float, calls_min: int, calls_max: int) -> list[Measurement]:
        made = [self._call(probe) for probe in probes]
        first = self._slowest(np.array([self._timed(*one) for one in made]))
        long = first > max(seconds, LONG_S)
        again = [one for one, only_once in zip(made, long, strict=True) if not only_once]
        trial = self._slowest(np.array([self._timed(*one) for one in again]))
        calls = [int(min(max(seconds / max(took, 1e-7), calls_min), calls_max)) for took in trial]
        times: list[list[float]] = [[] for _ in again]
        for turn in range(1, max(calls, default=0) + 1):
            for one, wanted, taken in zip(again, calls, times, strict=True):
                if len(taken) * max(calls) < wanted * turn:
                    taken.append(self._timed(*one))
        slowest = iter([self._slowest(np.array(taken)).tolist() for taken in times])
        return [
            Measurement(probe, [float(took)] if only_once else next(slowest))
            for probe, took, only_once in zip(probes, first, long, strict=True)
        ]

    def runs(self, probe: Probe) -> bool:
        """Whether the group can run it: the same on all ranks, as all know what it follows from."""
        try:
            self._call(probe)[0]()
        except (ConfigError, UnsupportedError):
            return False
        return True

    def _timed(self, call: Callable[[], object], arrays: Sequence[np.ndarray]) -> float:
        for array in arrays:
            np.copyto(array, self._fill[: len(array)])
        if self._rest_s:
            time.sleep(self._rest_s)
        self._group.barrier()
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin

    def _slowest(self, times: np.ndarray) -> np.ndarray:
        """For every call, the time of the rank that took longest."""
        return self._group.all_reduce(times, "max")

    def _call(self, probe: Probe) -> tuple[Callable[[], object], Sequence[np.ndarray]]:
        """The call to time, and the arrays to write before. Python's checks are not timed."""
        group, member = self._group, RankInGroup(self._group.rank, self._group.size)
        block = max(1, probe.bytes // _DTYPE.itemsize // group.size)
        whole = max(1, probe.bytes // _DTYPE.itemsize)
        message, share, target = self._input[:whole], self._input[:block], self._output[:block]
        blocks, into = self._input[: block * group.size], self._output[: block * group.size]
        root = group.rank == 0
        prepare: dict[str, tuple[Callable[[], PreparedCall], Sequence[np.ndarray]]] = {
            "barrier": (calls.barrier, []),
            "all-reduce": (lambda: calls.all_reduce(message, "sum", None), [message]),
            "reduce": (lambda: calls.reduce(member, message, 0, "sum", None), [message]),
            "broadcast": (lambda: calls.broadcast(member, message, 0), [message]),
            "all-gather": (lambda: calls.all_gather(member, share, into), [share, into]),
            "reduce-scatter": (lambda: calls.reduce_scatter(member, blocks, "sum", target), [blocks, target]),
            "all-to-all": (lambda: calls.all_to_all(member, blocks, None, None, into), [blocks, into]),
            "gather": (lambda: calls.gather(member, share, 0, into if root else None), [share, into]),
            "scatter": (lambda: calls.scatter(member, blocks if root else None, 0, target), [blocks, target]),
        }
        if probe.collective not in prepare:
            raise ConfigError(f"{probe.collective!r} cannot be measured: expected one of {', '.join(prepare)}")
        make, written = prepare[probe.collective]
        call, how = make(), _how(probe)
        return (lambda: group._run(call, **how)), written


def _how(probe: Probe) -> CallKeywords:
    return {
        "algorithm": probe.algorithm,
        "tile_bytes": probe.tile_bytes,
        "tiles_in_flight": probe.tiles_in_flight,
    }


_DTYPE = np.dtype(np.float32)
