"""The counters of all groups of a process, as samples."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import weakref
from collections import Counter
from collections.abc import Iterator

from weft import _weft
from weft.bootstrap import endpoints
from weft.errors import Error
from weft.observability.metrics import exposition
from weft.observability.metrics.exposition import Metric, Sample

__all__ = ["Collector"]

_KINDS = ("Aborted", "Desync", "PeerLost", "Timeout")
"""Failures that are shown before they occur, so that the first one is seen as an increase."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Watched:
    name: str
    counters: _weft.Counters
    group: weakref.ref[_weft.Group]


@dataclasses.dataclass(slots=True)
class _Totals:
    calls: int = 0
    bytes: int = 0
    seconds: float = 0.0


class Collector:
    """Samples of the groups that are watched.

    Counters of groups with the same name are added up, and those of groups that are gone are kept.
    """

    def __init__(self, rank: int) -> None:
        """`rank` is this process's rank, which every sample names."""
        self._rank = str(rank)
        self._lock = threading.Lock()
        self._watched: list[_Watched] = []
        self._past: dict[tuple[str, str], _Totals] = {}
        self._failures: Counter[tuple[str, str]] = Counter()
        # The last values of each connection, also of those that are closed.
        self._traffic: dict[tuple[int, str], tuple[str, tuple[int, int, int, int]]] = {}

    def watch(self, native: _weft.Group) -> None:
        """Counts the operations of a group from now on."""
        watched = _Watched(native.name, native.counters(), weakref.ref(native))
        with self._lock:
            self._watched.append(watched)
            for kind in _KINDS:
                self._failures[native.name, kind] += 0

    def failed(self, group: str, error: BaseException) -> None:
        """Counts a failure."""
        with self._lock:
            self._failures[group, type(error).__name__] += 1

    def samples(self) -> list[Sample]:
        """The values of all metrics now."""
        # Outside of the lock: the native layer may report a failure, which is counted above.
        traffic = self._ask_for_traffic()
        with self._lock:
            self._traffic.update(traffic)
            self._forget_groups()
            return [*self._process(), *self._operations(), *self._failed(), *self._network()]

    def _sample(self, metric: Metric, value: float, **labels: str) -> Sample:
        return Sample(metric, {"rank": self._rank, **labels}, value)

    def _process(self) -> Iterator[Sample]:
        yield self._sample(exposition.INFO, 1, version=_weft.__version__)
        used, quarantined, bound = endpoints.pool_bytes()
        yield self._sample(exposition.POOL_BYTES, used)
        yield self._sample(exposition.POOL_BYTES_QUARANTINED, quarantined)
        yield self._sample(exposition.POOL_BYTES_MAX, bound)

    def _operations(self) -> Iterator[Sample]:
        totals = {key: dataclasses.replace(past) for key, past in self._past.items()}
        _add(totals, self._watched)
        for (group, operation), sums in totals.items():
            labels = {"group": group, "operation": operation}
            yield self._sample(exposition.CALLS, sums.calls, **labels)
            yield self._sample(exposition.CALL_BYTES, sums.bytes, **labels)
            yield self._sample(exposition.CALL_SECONDS, sums.seconds, **labels)
        in_flight: Counter[str] = Counter()
        for one in self._watched:
            in_flight[one.name] += one.counters.in_flight
        for group, count in in_flight.items():
            yield self._sample(exposition.IN_FLIGHT, count, group=group)

    def _failed(self) -> Iterator[Sample]:
        for (group, kind), count in self._failures.items():
            yield self._sample(exposition.FAILURES, count, group=group, kind=kind)

    def _network(self) -> Iterator[Sample]:
        metrics = (
            exposition.SENT_BYTES,
            exposition.RECEIVED_BYTES,
            exposition.RETRANSMISSIONS,
            exposition.RENEWALS,
        )
        sums: Counter[tuple[Metric, str, str]] = Counter()
        for (_, transport), (host, counts) in self._traffic.items():
            for metric, count in zip(metrics, counts, strict=True):
                sums[metric, transport, host] += count
        for (metric, transport, host), count in sums.items():
            yield self._sample(metric, count, transport=transport, peer_host=host)

    def _forget_groups(self) -> None:
        """Keeps the counters of groups that are gone, but not the groups."""
        alive: list[_Watched] = []
        for one in self._watched:
            if one.group() is None:
                _add(self._past, [one])
            else:
                alive.append(one)
        self._watched = alive

    def _ask_for_traffic(self) -> dict[tuple[int, str], tuple[str, tuple[int, int, int, int]]]:
        """The kernel's counters of the present connections, by endpoint and transport."""
        with self._lock:
            groups = [one.group() for one in self._watched]
        found: dict[tuple[int, str], tuple[str, tuple[int, int, int, int]]] = {}
        for native in filter(None, groups):
            with contextlib.suppress(Error):  # of a closed group
                for endpoint, host, transport, sent, received, retransmissions, renewals in native.traffic():
                    found[endpoint, transport] = host, (sent, received, retransmissions, renewals)
        return found


def _add(totals: dict[tuple[str, str], _Totals], groups: list[_Watched]) -> None:
    for one in groups:
        for operation, calls, nbytes, seconds in one.counters.totals():
            sums = totals.setdefault((one.name, operation), _Totals())
            sums.calls += calls
            sums.bytes += nbytes
            sums.seconds += seconds
