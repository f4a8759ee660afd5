"""Instruction counts of a 4-byte all-reduce of two ranks under an old and a new build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benches.builds import measuring, stepping
from benches.builds.settings import MEMORIES, BuildCell, BuildLaunch, CellGroup
from weft_lab.bench.worker_groups import WorkerGroup

GROWTH_MAX = 1.02
_KIND = BuildLaunch(2, "shm")
_LEVELS = ("rust", "python", "torch")
_BYTES = 4
_CALLS = 8
"""The least of this many calls counts: any waiting of a call is added to it."""
_WARM_UP_CALLS = 1000
_FIXED_ADDRESSES = ("setarch", "-R")
"""Addresses decide about the paths of some of libc's functions."""

Ways = dict[CellGroup, int]
"""Instructions by way of calling."""


@dataclass(frozen=True)
class InstructionCount:
    """The instructions of a call."""

    group: CellGroup
    old: int
    new: int

    @property
    def growth(self) -> float:
        """New over old."""
        return self.new / self.old


def count(pythons: Mapping[str, Path]) -> list[InstructionCount]:
    """Counts them."""
    old, new = (_of_build(build, pythons) for build in ("old", "new"))
    return [InstructionCount(group, old[group], new[group]) for group in old]


def _of_build(build: str, pythons: Mapping[str, Path]) -> Ways:
    ways = [CellGroup(_KIND.ranks, _KIND.transport, level, memory) for level in _LEVELS for memory in MEMORIES]
    with measuring.started(_KIND, [build], pythons, 1 << 20, _FIXED_ADDRESSES) as there:
        return {way: _of_way(there[build], BuildCell(way, _BYTES)) for way in ways}


def _of_way(group: WorkerGroup, cell: BuildCell) -> int:
    measuring.prepare(group, cell)
    group.ask(_KIND.ranks, {"do": "time", "calls": _WARM_UP_CALLS})
    return min(_stepped(group) for _ in range(_CALLS))


def _stepped(group: WorkerGroup) -> int:
    """Instructions of rank 0 for one call."""
    for rank, line in group.lines.items():
        line.send({"do": "step" if rank == 0 else "time", "calls": 1})
    found = stepping.count(group.processes[0].pid)
    for line in group.lines.values():
        line.receive()
    return found
