"""Why an algorithm is chosen: what every candidate would take, and why some cannot be taken."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from weft.errors import ScheduleError
from weft.schedule import Call, Schedule
from weft.simulation.machine import Machine
from weft.simulation.simulator import Row, simulate_call

__all__ = ["Candidate", "candidates", "own_candidates"]

SMALLEST_BYTES = 4
"""At this size a call takes the time of its latency alone."""


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One algorithm for a call, by closed form, or a schedule of the user's own, as played."""

    algorithm: str
    summary: str
    refusal: str | None
    """Why it cannot be taken, if it cannot."""
    time_s: float | None
    latency_s: float | None
    """What of the time would be left without bytes."""


def candidates(machine: Machine, size: int, call: Call, algorithms: Sequence[str] | None = None) -> list[Candidate]:
    """All algorithms for a message of `size` bytes, the fastest first; those that cannot be taken last."""
    return _sorted(simulate_call(machine, call, [SMALLEST_BYTES, size], algorithms))


def own_candidates(machine: Machine, size: int, call: Call, schedules: Mapping[str, Schedule]) -> list[Candidate]:
    """The same of schedules of the user's own, by name."""
    refusals = {name: _refusal(schedule, call) for name, schedule in schedules.items()}
    usable = {name: schedule for name, schedule in schedules.items() if refusals[name] is None}
    refused = [Candidate(name, _OWN, refusal, None, None) for name, refusal in refusals.items() if refusal is not None]
    if not usable:
        return refused
    return [*_sorted(simulate_call(machine, call, [SMALLEST_BYTES, size], [], usable)), *refused]


_OWN = "a schedule of your own"


def _refusal(schedule: Schedule, call: Call) -> str | None:
    """Why the call cannot take it, if so."""
    try:
        report = schedule.verify("all")
        if (report.collective, report.ranks) != (call.collective, call.ranks):
            return f"is for {report.collective} of {report.ranks} ranks"
        if report.root != (None if report.root is None else call.root or 0):
            return f"is for root {report.root}"
        schedule.verify("all" if call.memory == "symmetric" else "scratch", call.hosts)
    except ScheduleError as error:
        return f"is refused: {error}"
    return None


def _sorted(rows: Sequence[Row]) -> list[Candidate]:
    found = [
        Candidate(
            row.algorithm,
            row.summary,
            row.refusal,
            time_s=row.times_s[1] if row.times_s else None,
            latency_s=min(row.times_s) if row.times_s else None,
        )
        for row in rows
    ]
    return sorted(found, key=lambda candidate: (candidate.time_s is None, candidate.time_s or 0.0))
