"""A job's records in the Trace Event Format, for ui.perfetto.dev and chrome://tracing.

Every rank is a process of the trace, every group a track in it. Operations of a group that overlap
in time get further tracks, since slices of one track must not overlap. Slices within an operation
show how long the rank waited for the last rank to call it. A rank that was late is marked by an
instant, from which arrows lead to the ranks that waited for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from weft.tracing.findings import LATE_NS
from weft.tracing.job import Collective, Job
from weft.tracing.record import Operation

__all__ = ["trace"]

Event = dict[str, Any]
Places = dict[tuple[int, int], int]
"""The track of an operation: by its rank, and its place in that rank's record."""


def trace(job: Job) -> dict[str, Any]:
    """The trace, to be written as JSON."""
    events: list[Event] = []
    tracks: Places = {}
    for rank, record in job.records.items():
        events.append(_named("process_name", rank, 0, f"rank {rank} on {record.host}"))
        events.append({**_named("process_sort_index", rank, 0, ""), "args": {"sort_index": rank}})
        placed, names = _tracks(record.operations, record.written, job)
        events += [_named("thread_name", rank, track, name) for track, name in enumerate(names, 1)]
        tracks |= {(rank, place): track for place, track in placed.items()}
        for place, operation in enumerate(record.operations):
            events.append(_slice(job, rank, tracks[rank, place], operation))
        events += [_instant(job, rank, failure.at, failure.error) for failure in record.failures]
    events += _waits(job, tracks)
    clocks = {clock.host: {"offset_ns": clock.offset_ns, "error_ns": clock.error_ns} for clock in _clocks(job)}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"recorded by": "weft", "clocks": clocks}}


def _clocks(job: Job) -> Iterator[Any]:
    yield from job.alignment.clocks.values()


def _named(what: str, rank: int, track: int, name: str) -> Event:
    return {"name": what, "ph": "M", "pid": rank, "tid": track, "ts": 0, "args": {"name": name}}


def _tracks(operations: Sequence[Operation], written: int, job: Job) -> tuple[dict[int, int], list[str]]:
    """A track for every operation on which it overlaps no other one; the names of the tracks."""
    placed: dict[int, int] = {}
    names: list[str] = []
    free: dict[str, list[tuple[int, int]]] = {}
    for place, operation in enumerate(operations):
        of_group = free.setdefault(operation.group, [])
        end = written if operation.ended is None else operation.ended
        nth = next((n for n, (_, until) in enumerate(of_group) if until <= operation.issued), len(of_group))
        if nth == len(of_group):
            names.append(job.group_names[operation.group] + (f" ({nth + 1})" if nth else ""))
            of_group.append((len(names), end))
        track = of_group[nth][0]
        of_group[nth] = (track, end)
        placed[place] = track
    return placed, names


def _us(job: Job, ns: int) -> float:
    return (ns - job.begin) / 1000


def _slice(job: Job, rank: int, track: int, operation: Operation) -> Event:
    end = job.records[rank].written if operation.ended is None else operation.ended
    details = {
        "call": operation.text,
        "group": operation.group,
        "sequence": operation.sequence,
        "algorithm": operation.algorithm,
        "priority": operation.priority,
        "state": _state(operation),
    }
    return {
        "name": operation.name,
        "cat": operation.kind,
        "ph": "X",
        "ts": _us(job, operation.issued),
        "dur": max(end - operation.issued, 0) / 1000,
        "pid": rank,
        "tid": track,
        "args": {key: value for key, value in details.items() if value is not None},
    }


def _state(operation: Operation) -> str:
    if operation.failed:
        return "failed"
    if operation.ended is not None:
        return "completed"
    return "waiting for its turn" if operation.begun is None else "under way"


def _instant(job: Job, rank: int, at: int, text: str) -> Event:
    return {
        "name": "failure",
        "cat": "failure",
        "ph": "i",
        "s": "p",
        "ts": _us(job, at),
        "pid": rank,
        "tid": 0,
        "args": {"error": text},
    }


def _waits(job: Job, tracks: Places) -> Iterator[Event]:
    """The waits for the ranks that called last, with arrows from there."""
    places = {
        (rank, operation.group, operation.sequence): tracks[rank, place]
        for rank, record in job.records.items()
        for place, operation in enumerate(record.operations)
    }
    arrows = itertools.count(1)
    for collective in job.collectives:
        *others, last = collective.parts.items()
        by = last[1].issued - max((part.issued for _, part in others), default=last[1].issued)
        if not others or not collective.is_matched or by <= LATE_NS:
            continue
        track = {rank: places[rank, collective.group, collective.sequence] for rank in collective.parts}
        yield _late(job, collective, last, track[last[0]], by)
        for rank, part in others:
            yield from _wait(job, (rank, part, track[rank]), (*last, track[last[0]]), next(arrows))


def _late(job: Job, collective: Collective, last: tuple[int, Operation], track: int, by: int) -> Event:
    rank, part = last
    return {
        "name": "late",
        "cat": "wait",
        "ph": "i",
        "s": "t",
        "ts": _us(job, part.issued),
        "pid": rank,
        "tid": track,
        "args": {"after the others, in ms": by / 1e6, "sequence": collective.sequence},
    }


def _wait(
    job: Job, waiting: tuple[int, Operation, int], last: tuple[int, Operation, int], number: int
) -> Iterator[Event]:
    rank, part, track = waiting
    culprit, late, culprits_track = last
    until = late.issued if part.ended is None else min(late.issued, part.ended)
    if until <= part.issued:
        return
    yield {
        "name": f"waiting for rank {culprit}",
        "cat": "wait",
        "ph": "X",
        "ts": _us(job, part.issued),
        "dur": (until - part.issued) / 1000,
        "pid": rank,
        "tid": track,
        "args": {},
    }
    arrow = {"name": "late", "cat": "wait", "id": number}
    yield {**arrow, "ph": "s", "ts": _us(job, late.issued), "pid": culprit, "tid": culprits_track}
    yield {**arrow, "ph": "f", "bp": "e", "ts": _us(job, until), "pid": rank, "tid": track}
