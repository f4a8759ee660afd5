"""Operations of the buckets' averages, as the flight recorder has seen them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from weft.flight import flight_record
from weft.torch.parallel.observer import Span
from weft.torch.parallel.reducer import Reducer

__all__ = ["Average", "averages"]

_CLOCK_ERROR_NS = 1_000_000
"""How far two readings of the same moment may be apart, through two clocks."""


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
    """The averages of this plan that are still on record (the last thousand), by time of issue."""
    issues = [span for span in reducer.observer.spans if span.kind == "issue"]
    recorded = list(_recorded(reducer.communication.native.name))
    found = (_matching(span, reducer.buckets[span.bucket or 0].memory.numel(), recorded) for span in issues)
    return [average for average in found if average is not None]


def _recorded(group: str) -> Iterable[dict[str, Any]]:
    """All-reduces of the group that have ended, with times on the monotonic clock."""
    for record in flight_record():
        offset = record["weft"]["realtime_ns"] - record["weft"]["monotonic_ns"]
        for entry in record["entries"]:
            is_average = entry["process_group"][1] == group and entry["weft"]["op"] == "avg"
            if is_average and not entry["is_p2p"] and entry["state"] == "completed":
                times = {
                    "issued": entry["time_created_ns"],
                    "begun": entry["time_discovered_started_ns"],
                    "ended": entry["time_discovered_completed_ns"],
                }
                moved = {name: time - offset for name, time in times.items() if time is not None}
                if len(moved) == len(times):
                    yield {**entry["weft"], **moved}


def _matching(span: Span, elements: int, recorded: list[dict[str, Any]]) -> Average | None:
    """The operation that was issued within the span."""
    for entry in recorded:
        within = span.start_ns - _CLOCK_ERROR_NS <= entry["issued"] <= span.end_ns + _CLOCK_ERROR_NS
        if within and entry["count"] == elements:
            recorded.remove(entry)
            return Average(
                span.bucket or 0, span.step, entry["issued"], entry["begun"], entry["ended"], entry["algorithm"] or ""
            )
    return None
