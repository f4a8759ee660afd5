"""Simulated times of calls, by algorithm and size."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from weft import _weft
from weft.call_shape import CallShape
from weft.drawing import GanttEvent
from weft.errors import ArgumentError
from weft.simulation.machine import Machine
from weft.simulation.schedules import SimulatedSchedule

__all__ = ["SimulatedRow", "simulate", "trace"]


@dataclasses.dataclass(frozen=True)
class SimulatedRow:
    """The times of one algorithm."""

    algorithm: str
    summary: str
    refusal: str | None
    """Why such a group cannot use it, if so."""
    times_s: tuple[float, ...]
    """By size: the time at which the last rank has finished; empty if it is refused."""
    assumption: str | None = None
    """Resources that the simulated ranks have and those of a real group lack, if any."""


def simulate(
    machine: Machine,
    sizes: Sequence[int],
    collective: str = "all-reduce",
    algorithms: Sequence[str] | None = None,
    *,
    root: int | None = None,
    memory: str = "ordinary",
    wire: str | None = None,
    schedules: Mapping[str, SimulatedSchedule] | None = None,
    event_driven: bool = False,
    tile_bytes: int | None = None,
    tiles_in_flight: int | None = None,
    work_max: int | None = None,
) -> list[SimulatedRow]:
    """Times of a collective on a machine, for messages of these sizes in bytes.

    Args:
        machine: The machine of the ranks.
        sizes: Bytes of the whole message.
        collective: The collective.
        algorithms: Their names; by default all that fit.
        root: The root of a rooted collective; rank 0 by default.
        memory: The caller's memory: `ordinary` or `symmetric`.
        wire: The format of elements between hosts; by default their own.
        schedules: User schedules, by name; they are always simulated.
        event_driven: Simulate every step of every rank, instead of the closed form.
        tile_bytes: The size of tiles; by default as large as fits.
        tiles_in_flight: How many tiles a rank may have under way.
        work_max: The most steps to simulate, of all simulated ranks and all tiles; calls with more
            are refused.

    An algorithm that needs more temporary memory than the executor of such a group has is simulated
    with ranks that have enough; its row says so.
    """
    call = machine.call(collective, root, memory, wire)
    options = {
        "event_driven": event_driven,
        "tile_bytes": tile_bytes,
        "tiles_in_flight": tiles_in_flight,
        "work_max": work_max,
        "enough_memory": True,
    }
    return simulate_call(machine, call, sizes, algorithms, schedules, options)


def simulate_call(
    machine: Machine,
    call: CallShape,
    sizes: Sequence[int],
    algorithms: Sequence[str] | None = None,
    schedules: Mapping[str, SimulatedSchedule] | None = None,
    options: Mapping[str, Any] | None = None,
) -> list[SimulatedRow]:
    """The same for a call of all the machine's ranks."""
    answer = _ask(
        {
            "call": call.question(),
            "machine": machine.question(),
            "algorithms": None if algorithms is None else list(algorithms),
            "schedules": [{"name": name, "text": schedule.text} for name, schedule in (schedules or {}).items()],
            "bytes": list(sizes),
            **(options or {}),
        }
    )
    return [
        SimulatedRow(row["algorithm"], row["summary"], row["refusal"], tuple(row["times_s"]), row["assumption"])
        for row in answer["rows"]
    ]


def trace(machine: Machine, size: int, call: CallShape, what: str | SimulatedSchedule) -> list[GanttEvent]:
    """Every simulated step of an algorithm or schedule, for a message of `size` bytes."""
    schedules = [{"name": "schedule", "text": what.text}] if not isinstance(what, str) else []
    answer = _ask(
        {
            "call": call.question(),
            "machine": machine.question(),
            "algorithms": [] if schedules else [what],
            "schedules": schedules,
            "bytes": [size],
            "trace": True,
        }
    )
    row = answer["rows"][0]
    if row["refusal"] is not None:
        raise ArgumentError(f"{row['algorithm']} {row['refusal']}")
    return [GanttEvent(**event) for event in row["events"]]


def _ask(question: dict[str, Any]) -> Any:
    return json.loads(_weft.simulate(json.dumps(question)))
