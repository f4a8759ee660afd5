"""Explanation of an algorithm choice: times of all candidates, and reasons for exclusion."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from weft import _weft
from weft.call_shape import CallShape
from weft.errors import ScheduleError
from weft.simulation.machine import Machine
from weft.simulation.schedules import SimulatedSchedule
from weft.simulation.simulator import SimulatedRow, simulate_call

__all__ = ["PricedCandidate", "candidates", "own_candidates", "untuned"]

SMALLEST_BYTES = 4
"""At this size a call takes the time of its latency alone."""


@dataclasses.dataclass(frozen=True)
class PricedCandidate:
    """One algorithm for a call, by closed form, or a user schedule, as simulated."""

    algorithm: str
    summary: str
    refusal: str | None
    """Why it cannot be used, if so."""
    time_s: float | None
    latency_s: float | None
    """The time of an empty message."""


def candidates(
    machine: Machine, size: int, call: CallShape, algorithms: Sequence[str] | None = None
) -> list[PricedCandidate]:
    """All algorithms for a message of `size` bytes, the fastest first.

    Those that cannot be used come last.
    """
    return _sorted(simulate_call(machine, call, [SMALLEST_BYTES, size], algorithms))


def own_candidates(
    machine: Machine, size: int, call: CallShape, schedules: Mapping[str, SimulatedSchedule]
) -> list[PricedCandidate]:
    """The same of user schedules, by name."""
    refusals = {name: _refusal(schedule, call) for name, schedule in schedules.items()}
    usable = {name: schedule for name, schedule in schedules.items() if refusals[name] is None}
    refused = [
        PricedCandidate(name, _OWN, refusal, None, None) for name, refusal in refusals.items() if refusal is not None
    ]
    if not usable:
        return refused
    return [*_sorted(simulate_call(machine, call, [SMALLEST_BYTES, size], [], usable)), *refused]


def untuned(machine: Machine, size: int, call: CallShape, found: Sequence[PricedCandidate]) -> str | None:
    """The algorithm that a group without a profile takes for a message of `size` bytes.

    By the defaults of the core, whose hosts are machines of their own. None if no default of this
    size can be used.
    """
    usable = {candidate.algorithm for candidate in found if candidate.time_s is not None}
    network = machine.question()["network"]
    round_trip_s = 2 * float(network.get("latency_s", 0.0))
    rows = _weft.untuned(call.collective, machine.ranks_of_hosts, call.memory == "symmetric", round_trip_s)
    names = next(names for limit, names in rows if limit is None or size <= limit)
    return next((name for name in names if name in usable), None)


_OWN = "a user schedule"


def _refusal(schedule: SimulatedSchedule, call: CallShape) -> str | None:
    """Why the call cannot use it, if so."""
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


def _sorted(rows: Sequence[SimulatedRow]) -> list[PricedCandidate]:
    found = [
        PricedCandidate(
            row.algorithm,
            row.summary,
            row.refusal,
            time_s=row.times_s[1] if row.times_s else None,
            latency_s=min(row.times_s) if row.times_s else None,
        )
        for row in rows
    ]
    return sorted(found, key=lambda candidate: (candidate.time_s is None, candidate.time_s or 0.0))
