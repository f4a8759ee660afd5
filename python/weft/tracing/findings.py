"""Findings from flight records: ranks that waited for others, and the reasons."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from weft.tracing.job import Collective, Job
from weft.tracing.record import Operation

__all__ = ["TraceFinding", "findings", "show_ns", "show_ranks"]

LATE_NS = 1_000_000
"""A rank that calls later than this after the others is reported."""
SLOW = 4.0
"""A collective that takes this many times as long as similar ones is reported."""
SIMILAR_MIN = 5
"""The number of similar calls that are needed to know the usual time."""
_AWAITED = {
    "send": "to receive it",
    "receive": "to send one",
    "put": "to receive it",
    "get": "to answer",
    "signal": "to receive it",
    "atomic": "to answer",
    "wait-signal": "to signal",
    "quiet": "to receive all puts",
}
"""The step of the other rank that ends an operation."""


@dataclass(frozen=True)
class TraceFinding:
    """One finding."""

    kind: str
    """`desync`, `missing`, `waiting`, `message`, `one-sided`, `late` or `slow`."""
    text: str
    group: str | None = None
    sequence: int | None = None
    ranks: tuple[int, ...] = ()
    """The ranks that are late, missing, or called something else."""
    waited_ns: int | None = None
    """The time that the other ranks have waited, added up."""


def findings(job: Job, most: int = 10) -> list[TraceFinding]:
    """Returns the findings from the records of a job.

    Args:
        job: Its records.
        most: The most late arrivals and slow collectives to return, the worst ones.
    """
    return [
        *_missing(job),
        *_desyncs(job),
        *_unfinished(job),
        *_unanswered(job),
        *_late(job, most),
        *_slow(job, most),
    ]


def _missing(job: Job) -> Iterator[TraceFinding]:
    if job.missing:
        errors = {failure.error for record in job.records.values() for failure in record.failures}
        lost = sorted(error for error in errors if any(f"rank {rank} " in error for rank in job.missing))
        why = f" The others report: {lost[0]}" if lost else " Its process may have been killed, or still runs."
        text = f"There is no record of {show_ranks(job.missing)}.{why}"
        yield TraceFinding("missing", text, ranks=tuple(job.missing))


def _desyncs(job: Job) -> Iterator[TraceFinding]:
    """The first collective of every group in which ranks made different calls."""
    reported = set()
    for collective in job.collectives:
        if collective.is_matched or collective.group in reported:
            continue
        reported.add(collective.group)
        calls: defaultdict[tuple[object, ...], list[int]] = defaultdict(list)
        for rank, part in collective.parts.items():
            calls[part.call].append(rank)
        by_number = sorted(calls.values(), key=lambda ranks: (-len(ranks), min(ranks)))
        said = "; ".join(f"{show_ranks(ranks)} called {collective.parts[ranks[0]].text}" for ranks in by_number)
        odd = tuple(sorted(rank for ranks in by_number[1:] for rank in ranks))
        text = f"Operation {collective.sequence} of group {job.group_names[collective.group]}: {said}."
        yield TraceFinding("desync", text, collective.group, collective.sequence, odd)


def _unfinished(job: Job) -> Iterator[TraceFinding]:
    """The first collective of every group that a rank has not ended, and the absent ranks."""
    reported = set()
    for collective in job.collectives:
        within = [rank for rank, part in collective.parts.items() if part.ended is None]
        if not within or not collective.is_matched or collective.group in reported:
            continue
        reported.add(collective.group)
        others = [rank for rank in job.groups[collective.group] if rank not in collective.parts]
        absent = [rank for rank in others if not job.has_gone_past(rank, collective)]
        first = min(collective.parts[rank].issued for rank in within)
        waited = sum(job.records[rank].written - collective.parts[rank].issued for rank in within)
        where = f"{collective.parts[within[0]].text}, operation {collective.sequence} of "
        where += f"group {job.group_names[collective.group]}"
        text = f"{_subject(within, 'is', 'are')} in {where}, since {show_ns(job.end - first)}"
        if absent:
            said = [_whereabouts(job, rank, collective) for rank in absent]
            text += f", and {_subject(absent, 'has', 'have')} not called it: {'; '.join(said)}"
        elif done := sorted(set(collective.parts) - set(within)):
            text += f"; {_subject(done, 'has', 'have')} ended it"
        elif len(within) == len(job.groups[collective.group]):
            text += ": all ranks have called it, and none has ended it"
        yield TraceFinding("waiting", text + ".", collective.group, collective.sequence, tuple(absent), waited)


def _subject(ranks: Sequence[int], one: str, several: str) -> str:
    return f"{show_ranks(ranks)} {one if len(ranks) == 1 else several}"


def _whereabouts(job: Job, rank: int, collective: Collective) -> str:
    """The state of a rank that has not called a collective."""
    if rank not in job.records:
        return f"there is no record of rank {rank}"
    record = job.records[rank]
    mine = [op for op in record.operations if op.group == collective.group and op.sequence is not None]
    ended = [op for op in mine if op.ended is not None]
    text = f"rank {rank}"
    if ended:
        text += f" last ended {_named(job, ended[-1])} {show_ns(record.written - _end(ended[-1]))} before"
    else:
        text += " has called nothing in this group yet" if not mine else " has ended nothing in this group yet"
    others = [op for op in record.operations if op.ended is None and not op.failed]
    return text + (f", and is in {_named(job, others[-1])}" if others else ", and is outside weft")


def _unanswered(job: Job) -> Iterator[TraceFinding]:
    """Messages and one-sided operations that a rank waits for."""
    for rank, record in job.records.items():
        for operation in record.operations:
            if operation.kind == "collective" or operation.ended is not None or operation.failed:
                continue
            peer = None if operation.peer is None else job.groups[operation.group][operation.peer]
            whom = "any rank" if peer is None else f"rank {peer}"
            since = record.written - operation.issued
            text = f"rank {rank} has waited for {show_ns(since)} in {_named(job, operation)} for {whom} "
            text += f"{_AWAITED[operation.name]}."
            ranks = () if peer is None else (peer,)
            yield TraceFinding(operation.kind, text, operation.group, None, ranks, since)


def _late(job: Job, most: int) -> Iterator[TraceFinding]:
    """The ranks that called last, by more than the clocks' error: the worst, the most frequent."""
    late: list[tuple[int, int, Collective]] = []
    for collective in job.collectives:
        if len(collective.parts) < 2 or not collective.is_matched:
            continue
        error = job.alignment.error_ns(job.records[rank] for rank in collective.parts)
        *others, last = collective.parts.values()
        if last.issued - others[-1].issued > max(LATE_NS, error):
            late.append((sum(last.issued - other.issued for other in others), _last(collective), collective))
    late.sort(key=lambda found: -found[0])
    for waited, rank, collective in late[:most]:
        *others, last = collective.parts.values()
        by = last.issued - others[-1].issued
        where = f"{last.text}, operation {collective.sequence} of group {job.group_names[collective.group]}"
        text = f"rank {rank} called {where}, {show_ns(by)} after the others"
        yield TraceFinding(
            "late", f"{text}: {_before(job, rank, last, by)}.", collective.group, collective.sequence, (rank,), waited
        )
    if len(late) > 1:
        yield _most_often_late(job, late)


def _most_often_late(job: Job, late: Sequence[tuple[int, int, Collective]]) -> TraceFinding:
    (rank, times), *_ = Counter(rank for _, rank, _ in late).most_common(1)
    waited = sum(waited for waited, late_rank, _ in late if late_rank == rank)
    text = (
        f"rank {rank} came last, by more than {show_ns(LATE_NS)}, in {times} of {len(job.collectives)} collectives; "
        f"the others waited {show_ns(waited)} for it in total."
    )
    return TraceFinding("late", text, ranks=(rank,), waited_ns=waited)


def _last(collective: Collective) -> int:
    return next(reversed(collective.parts))


def _before(job: Job, rank: int, operation: Operation, ns: int) -> str:
    """The activity of a rank in the time before an operation."""
    earlier = [op for op in job.records[rank].operations if op.issued < operation.issued]
    if not earlier:
        return "it is the first operation that is recorded there"
    busy = max(earlier, key=lambda op: min(op.ended or operation.issued, operation.issued) - operation.issued)
    until = busy.ended if busy.ended is not None and busy.ended < operation.issued else operation.issued
    outside = operation.issued - until
    if outside > ns / 2:
        return f"it was outside weft for {show_ns(outside)}, after {_named(job, busy)}"
    return f"it was in {_named(job, busy)} until {show_ns(outside)} before"


def _slow(job: Job, most: int) -> Iterator[TraceFinding]:
    """Collectives that took much longer than similar ones after all ranks had called them."""
    similar: defaultdict[tuple[object, ...], list[tuple[int, Collective]]] = defaultdict(list)
    for collective in job.collectives:
        parts = collective.parts.values()
        if len(parts) == len(job.groups[collective.group]) and all(part.ended is not None for part in parts):
            called = max(part.issued for part in parts)
            taken = max(_end(part) for part in parts) - called
            similar[collective.group, *collective.first.call, collective.first.algorithm].append((taken, collective))
    slow = []
    for found in similar.values():
        usual = statistics.median(taken for taken, _ in found)
        if len(found) >= SIMILAR_MIN:
            slow += [(taken, usual, one) for taken, one in found if taken > max(SLOW * usual, usual + LATE_NS)]
    for taken, usual, collective in sorted(slow, key=lambda one: one[1] - one[0])[:most]:
        rank, last = max(collective.parts.items(), key=lambda part: _end(part[1]))
        by = f" by {last.algorithm}" if last.algorithm else ""
        text = (
            f"{last.text}{by}, operation {collective.sequence} of group {job.group_names[collective.group]}, took "
            f"{show_ns(taken)} after all ranks had called it; similar calls took {show_ns(usual)}. "
            f"Rank {rank} ended it last."
        )
        extra = round((taken - usual) * len(collective.parts))
        yield TraceFinding("slow", text, collective.group, collective.sequence, (rank,), extra)


def _end(operation: Operation) -> int:
    return operation.issued if operation.ended is None else operation.ended


def _named(job: Job, operation: Operation) -> str:
    number = "" if operation.sequence is None else f", operation {operation.sequence}"
    return f"{operation.text}{number} of group {job.group_names[operation.group]}"


def show_ns(ns: float) -> str:
    """A duration for people: `35 ms`."""
    for unit, length in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(ns) >= length:
            return f"{ns / length:.3g} {unit}" if abs(ns) < 999.5 * length else f"{ns / length:.0f} {unit}"
    return f"{ns:.0f} ns"


def show_ranks(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 0, 1 and 3`."""
    *first, last = sorted(ranks)
    return f"rank {last}" if not first else f"ranks {', '.join(map(str, first))} and {last}"
