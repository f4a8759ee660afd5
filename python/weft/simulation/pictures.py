"""Gantt charts of simulated calls."""

from __future__ import annotations

from weft.call_shape import CallShape
from weft.drawing import Gantt, draw
from weft.errors import ArgumentError
from weft.quantities import show_bytes
from weft.simulation.machine import Machine
from weft.simulation.schedules import SimulatedSchedule
from weft.simulation.simulator import trace

__all__ = ["RANKS_MAX", "gantt"]

RANKS_MAX = 32
"""Pictures of more ranks are not readable."""


def gantt(machine: Machine, size: int, call: CallShape, what: str | SimulatedSchedule, name: str = "") -> str:
    """An SVG picture of an algorithm, or of a user schedule, for a message of `size` bytes."""
    if call.ranks > RANKS_MAX:
        raise ArgumentError(f"a picture of {call.ranks} ranks: at most {RANKS_MAX} can be read")
    title = name or (what if isinstance(what, str) else "schedule")
    hosts = len(call.hosts) if isinstance(call.hosts, list | tuple) else call.hosts or 1
    where = "one host" if hosts == 1 else f"{hosts} hosts"
    events = trace(machine, size, call, what)
    return draw(Gantt(f"{call.collective} {title}: {_shown(size)} on {call.ranks} ranks, {where}", call.ranks, events))


def _shown(size: int) -> str:
    text = show_bytes(size)
    return f"{text} B" if text.isdigit() else f"{text[:-1]} {text[-1]}iB"
