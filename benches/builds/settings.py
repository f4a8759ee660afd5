"""Measured cells and measurement effort."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass

from weft.quantities import parse_sizes, show_bytes

RANKS = (2, 4)
TRANSPORTS = ("shm", "tcp")
LEVELS = ("rust", "python", "torch")
MEMORIES = ("ordinary", "symmetric")


@dataclass(frozen=True, order=True)
class BuildLaunch:
    """The purpose of processes: cells of one launch are measured by the same processes."""

    ranks: int
    transport: str


@dataclass(frozen=True, order=True)
class CellGroup:
    """Cells of which the geometric mean is judged."""

    ranks: int
    transport: str
    level: str
    memory: str

    @property
    def name(self) -> str:
        """How tables call it."""
        return f"{self.ranks} ranks, {self.transport}, {self.level}, {self.memory}"


@dataclass(frozen=True, order=True)
class BuildCell:
    """One all-reduce of 32-bit floats."""

    group: CellGroup
    bytes: int

    @property
    def launch(self) -> BuildLaunch:
        """The launch whose processes measure it."""
        return BuildLaunch(self.group.ranks, self.group.transport)

    @property
    def name(self) -> str:
        """How tables call it."""
        return f"{self.group.name}, {show_bytes(self.bytes)}"

    def to_value(self) -> dict[str, object]:
        """For JSON."""
        return {**dataclasses.asdict(self.group), "bytes": self.bytes}


@dataclass(frozen=True)
class BuildEffort:
    """How much is measured."""

    sizes: list[int]
    launches: int
    """The number of launches: some causes of differences in speed are constant in a process.
    """
    rounds: int
    """Of every launch; in each, all contenders take their turns."""
    turn_s: float

    def cells(self) -> list[BuildCell]:
        """All of them."""
        groups = [CellGroup(*names) for names in itertools.product(RANKS, TRANSPORTS, LEVELS, MEMORIES)]
        return [BuildCell(group, size) for group in groups for size in self.sizes]


FULL = BuildEffort(sizes=parse_sizes("4:64M"), launches=3, rounds=9, turn_s=0.02)
QUICK = BuildEffort(sizes=parse_sizes("4:64M:64"), launches=1, rounds=5, turn_s=0.02)
