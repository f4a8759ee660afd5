"""Text tables of simulated times."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from weft.quantities import about_bytes, show_bytes, show_time
from weft.simulation import Crossover, Machine, SimulatedRow
from weft.simulation.curves import ALL_RANKS_MAX
from weft_lab import console

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Study", "crossover_lines", "scaling_parts", "time_table"]

COLUMNS_OF_SCALING = 5


@dataclasses.dataclass
class Study:
    """The results of `weft simulate`."""

    machine: Machine
    collective: str
    sizes: list[int]
    rows: list[SimulatedRow]
    """By closed form."""
    simulated: list[SimulatedRow] = dataclasses.field(default_factory=list)
    crossovers: list[Crossover] = dataclasses.field(default_factory=list)
    scaling: list[tuple[int, dict[str, float]]] = dataclasses.field(default_factory=list)

    @property
    def title(self) -> str:
        """The machine in a line."""
        hosts = self.machine.hosts if isinstance(self.machine.hosts, int) else len(self.machine.hosts)
        where = "one host" if hosts == 1 else f"{hosts} hosts"
        return f"{self.collective}, {self.machine.ranks} ranks on {where}"


def time_table(sizes: Sequence[int], rows: Sequence[SimulatedRow]) -> Table | str:
    """A line for every algorithm, the fastest at the largest size first.

    A star marks the fastest at each size.
    """
    usable = sorted((row for row in rows if row.times_s), key=lambda row: row.times_s[-1])
    if not usable:
        return "no algorithm fits"
    best = [min(row.times_s[index] for row in usable) for index in range(len(sizes))]
    table = console.new_table("algorithm", *(f">{show_bytes(size)} " for size in sizes))
    for row in usable:
        cells = [
            f"{show_time(time)}{'*' if time == least else ' '}" for time, least in zip(row.times_s, best, strict=True)
        ]
        fastest = any(time == least for time, least in zip(row.times_s, best, strict=True))
        table.add_row(row.algorithm, *cells, style="bold" if fastest else None)
    return table


def crossover_lines(crossovers: Sequence[Crossover]) -> list[str]:
    """The fastest algorithm by ranges of sizes."""
    if not crossovers:
        return []
    rows = [f"  from {about_bytes(crossover.from_bytes):>7}  {crossover.algorithm}" for crossover in crossovers]
    return ["", "fastest:", *rows]


def scaling_parts(study: Study) -> list[Table | str]:
    """Times by number of ranks, of the algorithms that are the fastest for the most of them."""
    if not study.scaling:
        return []
    names = _fastest_names([times for _, times in study.scaling])[:COLUMNS_OF_SCALING]
    per_host = study.machine.ranks_per_host
    hosts = f", {per_host} on a host" if per_host > 1 else ""
    few = f"above {ALL_RANKS_MAX} only the fastest"
    table = console.new_table(">ranks", *(f">{name}" for name in names))
    for ranks, times in study.scaling:
        table.add_row(str(ranks), *(show_time(times[name]) if name in times else "-" for name in names))
    return [f"\nmessages of {show_bytes(study.sizes[-1])} on more ranks{hosts}, closed form; {few}:", table]


def _fastest_names(columns: Sequence[Mapping[str, float]]) -> list[str]:
    """All names: first those that are the fastest for some number, then by the time at the last."""
    winners = [min(times, key=lambda name: times[name]) for times in columns if times]
    last = columns[-1] if columns else {}
    rest = sorted(last, key=lambda name: last[name])
    return list(dict.fromkeys([*sorted(set(winners), key=winners.count, reverse=True), *rest]))
