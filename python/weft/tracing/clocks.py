"""One clock for the records of several hosts.

Processes of one host share its monotonic clock. Between hosts, an offset is estimated from the
records: no rank ends a collective before the ranks that it depends on have called it, so every pair
of an end and a call bounds the difference of two hosts' clocks. All bounds together, also those by
way of third hosts, leave an interval for each host, which is shorter the shorter the shortest
operations are. Its middle is used, and half its length is the largest error. A host without such
bounds in both directions uses the system's clocks, which NTP or PTP may keep together.

The drift of clocks is not modelled. If clocks drift by more than the shortest operation takes,
bounds contradict each other; the error is then the size of the contradiction.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from weft.tracing.record import Failure, Operation, RankRecord

__all__ = ["Alignment", "HostClock", "align"]

_TO_ALL = {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "barrier"}
_FROM_ROOT = {"broadcast", "scatter"}
_TO_ROOT = {"reduce", "gather"}

Bounds = dict[tuple[str, str], float]
"""For two hosts, the upper bound of the second one's offset above the first one's, in ns."""


@dataclass(frozen=True)
class HostClock:
    """The alignment of a host's clock."""

    host: str
    offset_ns: int
    """The offset that is added to its monotonic clock."""
    error_ns: int | None
    """The largest error; None if it is not known, since the system's clocks are used."""


@dataclass(frozen=True)
class Alignment:
    """The records on one clock."""

    records: tuple[RankRecord, ...]
    clocks: dict[str, HostClock]
    """By boot id. All times are on the first host's clock."""

    def error_ns(self, records: Iterable[RankRecord]) -> int:
        """The largest error of times of these ranks against each other, as far as it is known."""
        hosts = {record.boot_id for record in records}
        return 0 if len(hosts) < 2 else sum(sorted(self.clocks[host].error_ns or 0 for host in hosts)[-2:])


def align(records: Sequence[RankRecord]) -> Alignment:
    """Puts records on the clock of the first one's host."""
    hosts = list(dict.fromkeys(record.boot_id for record in records))
    by_system = {host: _first(records, host).realtime_ahead for host in hosts}
    bounds = _closed(_bounds(records), hosts)
    clocks: dict[str, HostClock] = {}
    for host in hosts:
        high = bounds.get((hosts[0], host), math.inf)
        low = -bounds.get((host, hosts[0]), math.inf)
        name = _first(records, host).host
        if host == hosts[0]:
            clocks[host] = HostClock(name, 0, 0)
        elif math.isinf(high - low):
            clocks[host] = HostClock(name, _within(by_system[host] - by_system[hosts[0]], low, high), None)
        else:
            clocks[host] = HostClock(name, round((low + high) / 2), math.ceil(abs(high - low) / 2))
    moved = tuple(_shifted(record, clocks[record.boot_id].offset_ns) for record in records)
    return Alignment(moved, clocks)


def _within(value: float, low: float, high: float) -> int:
    return round(min(max(value, low), high))


def _first(records: Sequence[RankRecord], host: str) -> RankRecord:
    return next(record for record in records if record.boot_id == host)


def _bounds(records: Sequence[RankRecord]) -> Bounds:
    """The bounds from single operations, the tightest for each pair of hosts."""
    bounds: defaultdict[tuple[str, str], float] = defaultdict(lambda: math.inf)
    for ended, called in _dependencies(records):
        (ender, end), (caller, call) = ended, called
        if ender != caller:
            # end + offset(ender) >= call + offset(caller)
            bounds[ender, caller] = min(bounds[ender, caller], end - call)
    return dict(bounds)


def _closed(bounds: Bounds, hosts: Sequence[str]) -> Bounds:
    """With the bounds by way of other hosts (the shortest paths)."""
    found = dict(bounds)
    for via, one, other in itertools.product(hosts, repeat=3):
        way = found.get((one, via), math.inf) + found.get((via, other), math.inf)
        if one != other and way < found.get((one, other), math.inf):
            found[one, other] = way
    return found


Event = tuple[str, int]
"""A host and a time on its clock."""


def _dependencies(records: Sequence[RankRecord]) -> Iterator[tuple[Event, Event]]:
    """Pairs of the end of a collective and a call of it, without which it could not end."""
    same: defaultdict[tuple[str, int], list[tuple[RankRecord, Operation]]] = defaultdict(list)
    for record in records:
        for operation in record.operations:
            if operation.sequence is not None:
                same[operation.group, operation.sequence].append((record, operation))
    for parts in same.values():
        if len({operation.call for _, operation in parts}) > 1:
            continue
        for (ender, ended), (caller, called) in itertools.permutations(parts, 2):
            if ended.ended is not None and _depends(ended, _rank(ender, ended), _rank(caller, called)):
                yield (ender.boot_id, ended.ended), (caller.boot_id, called.issued)


def _depends(operation: Operation, ender: int | None, caller: int | None) -> bool:
    """Whether a rank of a collective cannot end it before another one has called it."""
    if operation.count == 0 and operation.name != "barrier":
        return False
    return (
        operation.name in _TO_ALL
        or (operation.name in _FROM_ROOT and operation.root == caller)
        or (operation.name in _TO_ROOT and operation.root == ender)
    )


def _rank(record: RankRecord, operation: Operation) -> int | None:
    """The record's rank in the operation's group."""
    ranks = record.groups.get(operation.group, ())
    return ranks.index(record.rank) if record.rank in ranks else None


def _shifted(record: RankRecord, ns: int) -> RankRecord:
    return replace(
        record,
        written=record.written + ns,
        operations=tuple(operation.shifted(ns) for operation in record.operations),
        failures=tuple(Failure(failure.group, failure.at + ns, failure.error) for failure in record.failures),
    )
