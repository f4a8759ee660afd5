"""Measuring cells: the processes of three contenders, asleep unless it is their turn, round by round."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benches.builds.settings import Cell, Effort, Launch
from weft import config
from weft.bench import launch, teams
from weft.bench.teams import Command, Team

Tell = Callable[[str], None]
"""Who is told how far it is."""
CONTENDERS = ("old", "new", "control")
"""The control is the old build once more."""
_PROGRAM = Path(__file__).with_name("contender.py")
_POOL_BYTES = 1 << 30
_CALLS_MIN = 3
_LONG_S = 0.05
"""A call that takes longer is made once in a turn."""


@dataclasses.dataclass
class Row:
    """One cell: what every round's turn of every contender took, the median of its calls."""

    cell: Cell
    us: dict[str, list[float]] = dataclasses.field(default_factory=lambda: {name: [] for name in CONTENDERS})

    def to_value(self) -> dict[str, Any]:
        """For JSON."""
        rounds = {name: [float(f"{time:.5g}") for time in times] for name, times in self.us.items()}
        return {**self.cell.to_value(), **rounds}


def measure(pythons: Mapping[str, Path], cells: Sequence[Cell], effort: Effort, tell: Tell) -> list[Row]:
    """Measures cells in several launches, whose rounds count alike."""
    rows = {cell: Row(cell) for cell in cells}
    for number in range(effort.launches):
        for kind in sorted({cell.launch for cell in cells}):
            tell(f"launch {number + 1} of {effort.launches}, {kind.ranks} ranks, {kind.transport}: starting")
            with started(kind, _turned(CONTENDERS, number), pythons, max(cell.bytes for cell in cells)) as there:
                for cell in (cell for cell in cells if cell.launch == kind):
                    _measure_cell(there, rows[cell], effort, number)
    return list(rows.values())


@contextlib.contextmanager
def started(
    kind: Launch, builds: Sequence[str], pythons: Mapping[str, Path], bytes_max: int, prefix: Sequence[str] = ()
) -> Iterator[dict[str, Team]]:
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
        spec, socket = Path(directory, "spec.json"), Path(directory, "conductor")
        value = {
            "ranks": kind.ranks,
            "ports": dict(zip(builds, _pairs(launch.free_ports(2 * len(builds))), strict=True)),
            "bytes_max": bytes_max,
            "socket": str(socket),
            "directory": directory,
        }
        spec.write_text(json.dumps(value))

        def command(build: str, rank: int) -> Command:
            line = [*prefix, str(pythons[build]), "-P", str(_PROGRAM), str(spec), build, str(rank)]
            return line, environment

        commands = {build: [command(build, rank) for rank in range(kind.ranks)] for build in builds}
        with teams.meet(socket, commands, kind.ranks) as there:
            yield {team.name: team for team in there}


def prepare(team: Team, cell: Cell) -> None:
    """Makes a contender ready for a cell."""
    question = {"do": "prepare", "level": cell.group.level, "memory": cell.group.memory, "bytes": cell.bytes}
    if not all(team.ask(cell.group.ranks, question)):
        raise launch.BenchError(f"{team.name}: {cell.name}: the result is wrong")


def _measure_cell(there: Mapping[str, Team], row: Row, effort: Effort, number: int) -> None:
    for team in there.values():
        prepare(team, row.cell)
    calls = _calls(there, row.cell, effort.turn_s)
    for turn in range(effort.rounds):
        for name in _turned(CONTENDERS, turn + number):
            row.us[name].append(_time(there[name], row.cell, calls)["median_us"])


def _calls(there: Mapping[str, Team], cell: Cell, turn_s: float) -> int:
    """How many calls make a turn: as many for all. Two glances at everybody, who are warm then."""
    each_s = max(_time(team, cell, 1)["each_s"] for team in there.values())
    glance = max(1, int(turn_s / 4 / each_s))
    each_s = max(_time(team, cell, glance)["each_s"] for team in there.values())
    return max(1 if each_s > _LONG_S else _CALLS_MIN, int(turn_s / each_s))


def _time(team: Team, cell: Cell, calls: int) -> dict[str, float]:
    answer: dict[str, float] = team.ask(cell.group.ranks, {"do": "time", "calls": calls})[0]
    return answer


def _turned(names: Sequence[str], by: int) -> list[str]:
    first = by % len(names)
    return [*names[first:], *names[:first]]


def _pairs(values: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(values[::2], values[1::2], strict=True))
