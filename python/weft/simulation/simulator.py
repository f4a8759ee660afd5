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
    """One algorithm."""

    algorithm: str
    summary: str
    refusal: str | None
    """Why such a group cannot take it, if it cannot."""
    times_s: tuple[float, ...]
    """By size: when the last rank has finished; empty if it is refused."""
    assumption: str | None = None
    """What ranks are taken to have that those of a real group have not, if anything."""


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
    """What a collective takes on a machine, for messages of these sizes in bytes.

    Args:
        machine: What the ranks run on.
        sizes: Bytes of the whole message.
        collective: What is carried out.
        algorithms: Which, by name; all that make sense there, if left out.
        root: The root of a rooted collective; rank 0, if left out.
        memory: The caller's: `ordinary` or `symmetric`.
        wire: The format in which elements travel between hosts; as they are, if left out.
        schedules: User schedules, by name; they are always simulated.
        event_driven: Simulate every step of every rank, instead of the closed form.
        tile_bytes: How large tiles are; as large as fits, if left out.
        tiles_in_flight: How many tiles a rank has under way at once.
        work_max: How many steps may be simulated, of all ranks that are simulated and of all tiles:
            what has more is refused.

    What needs more temporary memory than the executor of such a group has is told for ranks that
    have enough; its row says so.
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
