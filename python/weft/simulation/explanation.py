"""Why an algorithm is chosen: what every candidate would take, and why some cannot be taken."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from weft.schedule import Call
from weft.simulation.machine import Machine
from weft.simulation.simulator import simulate_call

__all__ = ["Candidate", "candidates"]

SMALLEST_BYTES = 4
"""At this size a call takes the time of its latency alone."""


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One algorithm for a call, by closed form."""

    algorithm: str
    summary: str
    refusal: str | None
    """Why it cannot be taken, if it cannot."""
    time_s: float | None
    latency_s: float | None
    """What of the time would be left without bytes."""


def candidates(machine: Machine, size: int, call: Call, algorithms: Sequence[str] | None = None) -> list[Candidate]:
    """All algorithms for a message of `size` bytes, the fastest first; those that cannot be taken last."""
    rows = simulate_call(machine, call, [SMALLEST_BYTES, size], algorithms)
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
