"""Plot of simulated times by size and by number of ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.output import files
from weft.quantities import about_bytes, show_bytes
from weft.simulation.curves import ALL_RANKS_MAX, Crossover
from weft.simulation.simulator import SimulatedRow
from weft_lab import plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["COLOURED", "best_few", "draw"]

COLOURED = 6
"""The number of algorithms with their own colour; the others are grey."""
_GREY = "#bbbbbb"

Scaling = Sequence[tuple[int, Mapping[str, float]]]
"""Seconds by algorithm, for numbers of ranks."""


def best_few(rows: Sequence[SimulatedRow], scaling: Scaling) -> list[str]:
    """The algorithms to colour.

    Those that are the fastest at a size or number of ranks, most often first, then those that are
    close at the largest size.
    """
    usable = [row for row in rows if row.times_s]
    columns = [{row.algorithm: row.times_s[index] for row in usable} for index in range(_sizes(usable))]
    columns += [dict(times) for _, times in scaling if times]
    winners = [min(times, key=lambda name: times[name]) for times in columns]
    often = sorted(dict.fromkeys(winners), key=winners.count, reverse=True)
    near = [row.algorithm for row in sorted(usable, key=lambda row: row.times_s[-1])]
    return list(dict.fromkeys([*often, *near]))[:COLOURED]


def draw(
    path: Path,
    title: str,
    sizes: Sequence[int],
    rows: Sequence[SimulatedRow],
    scaling: Scaling,
    crossovers: Sequence[Crossover] = (),
) -> None:
    """Writes the picture; the file's suffix gives the format."""
    pyplot = plots.pyplot()

    few = best_few(rows, scaling)
    panels = 2 if scaling else 1
    figure, axes = pyplot.subplots(1, panels, figsize=(5.5 * panels + 3.5, 4.8), squeeze=False, layout="constrained")
    curves = {row.algorithm: list(zip(sizes, row.times_s, strict=True)) for row in rows if row.times_s}
    _curves(axes[0][0], curves, few)
    _axes(axes[0][0], title, "bytes of the message")
    axes[0][0].set_xticks(sizes, [show_bytes(size) for size in sizes], rotation=60, minor=False)
    axes[0][0].minorticks_off()
    _mark(axes[0][0], sizes, crossovers)
    if scaling:
        names = list(dict.fromkeys(name for _, times in scaling for name in times))
        growing = {name: [(ranks, times[name]) for ranks, times in scaling if name in times] for name in names}
        _curves(axes[0][1], growing, few)
        _axes(axes[0][1], f"messages of {show_bytes(sizes[-1])}{_restriction(scaling)}", "ranks")
    lines, labels = axes[0][0].get_legend_handles_labels()
    if len(curves) > len(few):
        (grey,) = axes[0][0].plot([], [], color=_GREY, linewidth=0.8)
        lines, labels = [*lines, grey], [*labels, f"{len(curves) - len(few)} others"]
    figure.legend(lines, labels, loc="outside right upper", fontsize="small", frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.replacing(path) as file:
        figure.savefig(file, dpi=130, format=path.suffix[1:])
    pyplot.close(figure)


def _curves(panel: Axes, curves: Mapping[str, Sequence[tuple[int, float]]], few: Sequence[str]) -> None:
    """Microseconds by size or by ranks: the coloured lines above the grey ones."""
    for name in [*(name for name in curves if name not in few), *(name for name in few if name in curves)]:
        x, times_s = zip(*curves[name], strict=True)
        look: dict[str, Any] = {"color": _GREY, "linewidth": 0.8, "zorder": 1}
        if name in few:
            place = few.index(name)
            look = {
                "color": plots.COLOURS[place],
                "linewidth": 1.8,
                "marker": "o",
                "markersize": 3,
                "zorder": 9 - place,
            }
        panel.plot(x, [time * 1e6 for time in times_s], label=name if name in few else None, **look)


def _mark(panel: Axes, sizes: Sequence[int], crossovers: Sequence[Crossover]) -> None:
    """A line at each size from which on another algorithm is the fastest."""
    for crossover in crossovers:
        if sizes[0] < crossover.from_bytes < sizes[-1]:
            panel.axvline(crossover.from_bytes, color="#333333", linewidth=0.8, linestyle=":")
            panel.annotate(
                f"from {about_bytes(crossover.from_bytes)}: {crossover.algorithm}",
                (crossover.from_bytes, 0.985),
                xycoords=("data", "axes fraction"),
                xytext=(2, 0),
                textcoords="offset points",
                rotation=90,
                va="top",
                fontsize=6,
                color="#333333",
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.5},
                zorder=20,
            )


def _restriction(scaling: Scaling) -> str:
    """The algorithms that are left out, in a few words."""
    return f"; above {ALL_RANKS_MAX} ranks the fastest" if scaling[-1][0] > ALL_RANKS_MAX else ""


def _sizes(rows: Sequence[SimulatedRow]) -> int:
    return len(rows[0].times_s) if rows else 0


def _axes(panel: Axes, title: str, label: str) -> None:
    panel.set(xscale="log", yscale="log", xlabel=label, ylabel="µs")
    panel.set_title(title, fontsize="medium")
    panel.grid(alpha=0.3)
