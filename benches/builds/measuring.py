"""Measurement of cells: three contenders in turn in every round, idle processes asleep."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benches.builds.settings import BuildCell, BuildEffort, BuildLaunch
from weft import config
from weft.processes.local_ranks import Command
from weft.processes.ports import free_ports
from weft_lab.bench import launch, worker_groups
from weft_lab.bench.worker_groups import WorkerGroup

Progress = Callable[[str], None]
"""Receives lines about the progress."""
CONTENDERS = ("old", "new", "control")
"""The control is the old build once more."""
_PROGRAM = Path(__file__).with_name("contender.py")
_POOL_BYTES = 1 << 30
_CALLS_MIN = 3
_LONG_S = 0.05
"""A call that takes longer is made once in a turn."""


@dataclasses.dataclass
class BuildRow:
    """One cell: for every round and contender, the median of its calls."""

    cell: BuildCell
    us: dict[str, list[float]] = dataclasses.field(default_factory=lambda: {name: [] for name in CONTENDERS})

    def to_value(self) -> dict[str, Any]:
        """For JSON."""
        rounds = {name: [float(f"{time:.5g}") for time in times] for name, times in self.us.items()}
        return {**self.cell.to_value(), **rounds}


def measure(
    pythons: Mapping[str, Path], cells: Sequence[BuildCell], effort: BuildEffort, progress: Progress
) -> list[BuildRow]:
    """Measures cells in several launches, whose rounds have equal weight."""
    rows = {cell: BuildRow(cell) for cell in cells}
    for number in range(effort.launches):
        for kind in sorted({cell.launch for cell in cells}):
            progress(f"launch {number + 1} of {effort.launches}, {kind.ranks} ranks, {kind.transport}: starting")
            with started(kind, _turned(CONTENDERS, number), pythons, max(cell.bytes for cell in cells)) as there:
                for cell in (cell for cell in cells if cell.launch == kind):
                    _measure_cell(there, rows[cell], effort, number)
    return list(rows.values())


@contextlib.contextmanager
def started(
    kind: BuildLaunch, builds: Sequence[str], pythons: Mapping[str, Path], bytes_max: int, prefix: Sequence[str] = ()
) -> Iterator[dict[str, WorkerGroup]]:
    """The processes of some builds, ready. They end with the block, however it ends."""
    environment = {
        **config.environment(),
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "WEFT_TRANSPORT": kind.transport,
        "WEFT_POOL_BYTES": str(_POOL_BYTES),
        "WEFT_PROFILE": "none",
    }
    with launch.shared_directory() as directory:
        spec, socket = Path(directory, "spec.json"), Path(directory, "coordinator")
        value = {
            "ranks": kind.ranks,
            "ports": dict(zip(builds, _pairs(free_ports(2 * len(builds))), strict=True)),
            "bytes_max": bytes_max,
            "socket": str(socket),
            "directory": directory,
        }
        spec.write_text(json.dumps(value))

        def command(build: str, rank: int) -> Command:
            line = [*prefix, str(pythons[build]), "-P", str(_PROGRAM), str(spec), build, str(rank)]
            return line, environment

        commands = {build: [command(build, rank) for rank in range(kind.ranks)] for build in builds}
        with worker_groups.meet(socket, commands, kind.ranks) as there:
            yield {group.name: group for group in there}


def prepare(group: WorkerGroup, cell: BuildCell) -> None:
    """Makes a contender ready for a cell."""
    question = {"do": "prepare", "level": cell.group.level, "memory": cell.group.memory, "bytes": cell.bytes}
    if not all(group.ask(cell.group.ranks, question)):
        raise launch.BenchError(f"{group.name}: {cell.name}: the result is wrong")


def _measure_cell(there: Mapping[str, WorkerGroup], row: BuildRow, effort: BuildEffort, number: int) -> None:
    for group in there.values():
        prepare(group, row.cell)
    calls = _calls(there, row.cell, effort.turn_s)
    for turn in range(effort.rounds):
        for name in _turned(CONTENDERS, turn + number):
            row.us[name].append(_time(there[name], row.cell, calls)["median_us"])


def _calls(there: Mapping[str, WorkerGroup], cell: BuildCell, turn_s: float) -> int:
    """Returns the calls of a turn, the same for all, from two short turns that also warm up."""
    each_s = max(_time(group, cell, 1)["each_s"] for group in there.values())
    glance = max(1, int(turn_s / 4 / each_s))
    each_s = max(_time(group, cell, glance)["each_s"] for group in there.values())
    return max(1 if each_s > _LONG_S else _CALLS_MIN, int(turn_s / each_s))


def _time(group: WorkerGroup, cell: BuildCell, calls: int) -> dict[str, float]:
    answer: dict[str, float] = group.ask(cell.group.ranks, {"do": "time", "calls": calls})[0]
    return answer


def _turned(names: Sequence[str], by: int) -> list[str]:
    first = by % len(names)
    return [*names[first:], *names[:first]]


def _pairs(values: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(values[::2], values[1::2], strict=True))
