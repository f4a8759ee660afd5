"""Execution plans of calls, for inspection, storage and replay."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from weft import _weft
from weft.profiles import Profile, ProfileRow, ProfileTopology, hardware

__all__ = ["Plan", "show_units", "topology_of"]


@dataclasses.dataclass(frozen=True)
class Plan:
    """The algorithm and tiling of a collective in a group, at a size.

    Equal hashes mean equal plans, on all ranks and in every run.
    """

    collective: str
    bytes: int
    """The size of the whole message, all blocks together."""
    name: str
    """The algorithm, with its parts."""
    tile_bytes: int
    """The part of the largest chunk that one tile takes."""
    tiles: int
    """The number of tiles of the message."""
    tiles_in_flight: int
    """How many of them may be under way at once."""
    hash: str
    """16 hexadecimal digits."""
    why: tuple[str, ...]
    """The candidates and the reasons for and against them; the chosen one first."""
    topology: ProfileTopology
    """The group that it is for."""
    domains: tuple[tuple[int, ...], ...]
    """The levels of domains inside hosts, innermost first: for every rank, the lowest rank of its
    domain.
    """
    _row: ProfileRow
    _schedule: str | None
    """The text form, if the algorithm is a user schedule."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan as a profile.

        Groups of `weft.init(profile=path)` run this collective by it, at every size. Their ranks
        must be placed like this group's. A user schedule is part of the file.
        """
        schedules = {} if self._schedule is None else {self.name: self._schedule}
        Profile(self.topology, {}, {self.collective: [self._row]}, schedules).save(Path(path))

    def __str__(self) -> str:
        tiles = f"{self.tiles} tiles of up to {self.tile_bytes} bytes, {self.tiles_in_flight} in flight"
        head = f"{self.collective} of {self.bytes} bytes: {self.name}, {tiles}, plan {self.hash}"
        domains = [f"  domains: {show_units(level)}" for level in self.domains]
        return "\n".join([head, *domains, *(f"  {reason}" for reason in self.why)])


def show_units(unit_of_rank: Sequence[int]) -> str:
    """The ranks of each unit: `{0, 1} {2, 3}`."""
    units: dict[int, list[str]] = {}
    for rank, unit in enumerate(unit_of_rank):
        units.setdefault(unit, []).append(str(rank))
    return " ".join(f"{{{', '.join(ranks)}}}" for ranks in units.values())


def topology_of(native: _weft.Group) -> ProfileTopology:
    """The placement of the ranks of a group."""
    ranks_per_host = [count for _, count in sorted(Counter(native.hosts()).items())]
    kinds = {native.transport(rank) for rank in range(native.size)} - {None}
    return ProfileTopology(
        native.size, ranks_per_host, sorted(str(kind) for kind in kinds), hardware(), native.domains()
    )


def plan(native: _weft.Group, collective: str, nbytes: int, dtype: str, *, symmetric: bool) -> Plan:
    """See `Group.plan`."""
    found = native.explain(collective, nbytes, dtype, symmetric)
    return Plan(
        collective=collective,
        bytes=nbytes,
        name=found.algorithm,
        tile_bytes=found.tile_bytes,
        tiles=found.tiles,
        tiles_in_flight=found.tiles_in_flight,
        hash=f"{found.hash:016x}",
        why=tuple(found.why),
        topology=topology_of(native),
        domains=tuple(map(tuple, native.domains())),
        _row=ProfileRow(None, found.algorithm, found.asked_tile_bytes, found.asked_tiles_in_flight),
        _schedule=found.schedule,
    )
