"""Operations of the buckets' averages, from the flight record."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from weft.datatypes.ops import Op
from weft.observability.flight import flight_record
from weft.torch.parallel.observer import Span
from weft.torch.parallel.reducer import Reducer

__all__ = ["Average", "averages"]

_CLOCK_ERROR_NS = 1_000_000
"""The largest difference of two readings of the same moment, through two clocks."""


@dataclasses.dataclass(frozen=True)
class Average:
    """The average of a bucket that has ended. Times are those of `Span`."""

    bucket: int
    step: int
    issued_ns: int
    begun_ns: int
    ended_ns: int
    algorithm: str


def averages(reducer: Reducer) -> list[Average]:
    """The averages of this plan that are still on record (the last thousand), by time of issue.

    Averages of several operations were timed by their executor.
    """
    spans = list(reducer.observer.spans)
    timed = [_timed(span) for span in spans if span.kind == "average"]
    known = {(average.bucket, average.step) for average in timed}
    issues = [span for span in spans if span.kind == "issue" and (span.bucket, span.step) not in known]
    recorded = list(_recorded(reducer.communication.native.name))
    found = (
        _matching(span, *reducer.average.operation(reducer.buckets[span.bucket or 0]), recorded) for span in issues
    )
    return sorted(
        [*timed, *(average for average in found if average is not None)], key=lambda average: average.issued_ns
    )


def _timed(span: Span) -> Average:
    return Average(span.bucket or 0, span.step, span.start_ns, span.start_ns, span.end_ns, span.by)


def _recorded(group: str) -> Iterable[dict[str, Any]]:
    """Operations of the group that have ended, with times on the monotonic clock."""
    for record in flight_record():
        offset = record["weft"]["realtime_ns"] - record["weft"]["monotonic_ns"]
        for entry in record["entries"]:
            if entry["process_group"][1] == group and not entry["is_p2p"] and entry["state"] == "completed":
                times = {
                    "issued": entry["time_created_ns"],
                    "begun": entry["time_discovered_started_ns"],
                    "ended": entry["time_discovered_completed_ns"],
                }
                moved = {name: time - offset for name, time in times.items() if time is not None}
                if len(moved) == len(times):
                    yield {**entry["weft"], **moved}


def _matching(span: Span, op: Op, elements: int, recorded: list[dict[str, Any]]) -> Average | None:
    """The operation that was issued within the span."""
    for entry in recorded:
        within = span.start_ns - _CLOCK_ERROR_NS <= entry["issued"] <= span.end_ns + _CLOCK_ERROR_NS
        if within and entry["op"] == op and entry["count"] == elements:
            recorded.remove(entry)
            return Average(
                span.bucket or 0, span.step, entry["issued"], entry["begun"], entry["ended"], entry["algorithm"] or ""
            )
    return None
