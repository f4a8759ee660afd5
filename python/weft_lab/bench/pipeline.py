"""The pipeline experiment: a pipelined all-reduce against Open MPI, baidu's ring and Gloo.

8 ranks reduce 256 MB, 10 times each; medians with their 95 % confidence intervals. No run is a
rehearsal: the first one counts too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import comb
from pathlib import Path
from typing import TYPE_CHECKING

from weft.output import files
from weft.processes.ports import free_ports
from weft.quantities import show_bytes
from weft_lab import console, plots
from weft_lab.bench import launch, plot
from weft_lab.bench.rows import BenchRow
from weft_lab.bench.spec import MEMORIES, RING, Spec

if TYPE_CHECKING:
    from rich.table import Table

NAME = "pipeline-experiment"
RANKS = 8
BYTES = 256 << 20
RUNS = 10
PEERS = ("openmpi", "baidu-ring", "gloo")


def spec(
    directory: str,
    *,
    size: int = BYTES,
    ranks: int = RANKS,
    runs: int = RUNS,
    peers: Sequence[str] = PEERS,
) -> Spec:
    """The experiment, in the form for the measuring processes."""
    return Spec(
        collective="all-reduce",
        dtype="float32",
        sizes=[size],
        ranks=ranks,
        hosts=1,
        gbps=None,
        through="library",
        transport="auto",
        memories=list(MEMORIES),
        peers=[RING, *peers],
        seconds=0.0,
        rounds=runs,
        floors=False,
        ports=free_ports(2),
        directory=directory,
    )


def measure(what: Spec, on_run: Callable[[], object] = lambda: None) -> list[BenchRow]:
    """Its rows: `rounds_us` are the runs, the first one first."""
    with launch.conducted(what, on_run) as coordinator:
        return coordinator.runs(what.sizes[0])


def confidence(runs_us: Sequence[float]) -> tuple[float, float]:
    """The two runs that the median lies between with a probability of at least 95 %.

    With fewer than six runs no two are far enough apart: then the lowest and the highest.
    """
    ordered, number = sorted(runs_us), len(runs_us)
    outside = 0
    # This many runs at either end are beyond the median with a probability of at most 2.5 % each.
    while sum(comb(number, lower) for lower in range(outside + 1)) / 2**number <= 0.025:
        outside += 1
    outside = max(outside - 1, 0)
    return ordered[outside], ordered[number - 1 - outside]


def table(rows: Sequence[BenchRow]) -> tuple[str, Table]:
    """A title and a table: every contender's runs, and their times as multiples of weft's."""
    first = rows[0]
    ours = [row for row in rows if row.kind == "weft"]
    title = f"\nall-reduce of {show_bytes(first.bytes)}, {first.ranks} ranks, {len(first.rounds_us)} runs each, in turn"
    columns = ("library", ">median ms", ">95 % interval", ">first run", ">farthest", ">#wrong")
    found = console.new_table(*columns, *(f">/ {row.name}" for row in ours))
    for row in rows:
        low, high = (bound / 1e3 for bound in confidence(row.rounds_us))
        found.add_row(
            row.name,
            f"{row.median_us / 1e3:.2f}",
            f"{low:.2f} to {high:.2f}",
            f"{row.rounds_us[0] / 1e3:.2f}",
            f"{row.spread:.1%}",
            str(row.wrong),
            *(f"{row.median_us / one.median_us:.2f}" for one in ours),
            style=None if row.verified else "bold red",
        )
    return title, found


def draw(path: Path, rows: Sequence[BenchRow]) -> None:
    """A bar for every contender's median, its confidence interval, and the runs as dots."""
    pyplot = plots.pyplot()

    figure, panel = pyplot.subplots(figsize=(1.6 * len(rows) + 1.5, 4.5))
    for place, row in enumerate(rows):
        median = row.median_us / 1e3
        low, high = (bound / 1e3 for bound in confidence(row.rounds_us))
        color = plot.colour(row)
        panel.bar(place, median, yerr=[[median - low], [high - median]], capsize=6, color=color, alpha=0.8)
        panel.plot([place] * len(row.rounds_us), [run / 1e3 for run in row.rounds_us], "k.", markersize=4)
        panel.annotate(f"{median:.0f}", (place, median / 2), ha="center")
    panel.set_xticks(range(len(rows)), [row.name for row in rows])
    first = rows[0]
    panel.set(
        ylabel="ms (bar: median, line: 95 % interval, dots: runs)",
        title=f"all-reduce of {show_bytes(first.bytes)}, {first.ranks} ranks, {len(first.rounds_us)} runs",
    )
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.replacing(path) as file:
        figure.savefig(file, dpi=130, format=path.suffix[1:])
    pyplot.close(figure)
