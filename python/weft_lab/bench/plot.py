"""Plots of rows: time per call and bus bandwidth by message size, columns by number of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.output import files
from weft.quantities import show_bytes
from weft_lab import plots
from weft_lab.bench.rows import BenchRow

__all__ = ["COLOURS", "colour", "draw"]

COLOURS = {
    "weft": "#0072b2",
    "gloo": "#d55e00",
    "openmpi": "#009e73",
    "openmpi-raben": "#56b48f",
    "openmpi-ucx": "#00664b",
    "mpich": "#cc79a7",
    "mpich-ring": "#e3b5cf",
    "intel-mpi": "#56b4e9",
    "oneccl": "#e69f00",
    "baidu-ring": "#8c6d31",
    "baidu-ring-ucx": "#5c4720",
    "weft-ring": "#003f66",
    "weft-aes-gcm": "#7a5195",
    "weft-chacha20-poly1305": "#bc80bd",
}
"""The colour of a library in every picture; the colour-blind can distinguish all of them as far as
their number allows."""
_FLOOR = "#999999"
_OTHERS = "#444444"
_RATE = "tcp stream"
"""Floors that are a rate: the time of their bytes is not comparable with other sizes."""
_WEFT_STYLES = ("-", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
"""Line styles of weft's memories, wire formats and places, which share its colour."""
_FLOOR_STYLES = ((0, (1, 2)), (0, (4, 3)), (0, (6, 2, 1, 2)), (0, (2, 1)))


def _place(found: str) -> int:
    """The position of a colour in the legend."""
    return {COLOURS["weft"]: 0, _FLOOR: 2}.get(found, 1)


def colour(row: BenchRow) -> str:
    """The colour of a contender."""
    return _FLOOR if row.kind == "floor" else COLOURS.get(row.library, _OTHERS)


def draw(path: Path, rows: Sequence[BenchRow]) -> None:
    """Writes the picture; the file's suffix gives the format."""
    pyplot = plots.pyplot()

    rank_counts = sorted({row.ranks for row in rows})
    moves_bytes = any(row.busbw_gbs > 0 for row in rows)
    panels = 2 if moves_bytes else 1
    figure, axes = pyplot.subplots(
        panels,
        len(rank_counts),
        figsize=(5.6 * len(rank_counts) + 2.6, 3.6 * panels),
        squeeze=False,
        sharex="col",
        sharey="row",
        layout="constrained",
    )
    styles = _styles(rows)
    for column, ranks in enumerate(rank_counts):
        here = [row for row in rows if row.ranks == ranks]
        _times(axes[0][column], here, styles)
        axes[0][column].set_title(_title(here[0]), fontsize="medium")
        if moves_bytes:
            _bandwidths(axes[1][column], here, styles)
        sizes = sorted({row.bytes for row in here})
        shown = sizes if len(sizes) <= 16 else sizes[:: -(-len(sizes) // 16)]
        axes[-1][column].set_xticks(shown, [show_bytes(size) for size in shown], rotation=60, minor=False)
        axes[-1][column].minorticks_off()
        axes[-1][column].set_xlabel("bytes of the message")
    axes[0][0].set_ylabel("µs per call, slowest rank\n(median; shaded: min to p95)")
    if moves_bytes:
        axes[1][0].set_ylabel("bus bandwidth, GB/s")
    lines, labels = _legend(axes[0])
    figure.legend(lines, labels, loc="outside right upper", fontsize="small", frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.replacing(path) as file:
        figure.savefig(file, dpi=130, format=path.suffix[1:])
    pyplot.close(figure)


def _title(row: BenchRow) -> str:
    hosts = "" if row.hosts == 1 else f" on {row.hosts} hosts"
    rate = "" if row.gbps is None else f" at {row.gbps:g} Gbit/s"
    return f"{row.collective}, {row.dtype}, {row.ranks} ranks{hosts}{rate}"


def _styles(rows: Sequence[BenchRow]) -> dict[str, Any]:
    """The style of every contender's line, by name: the same in all panels."""
    weft = dict.fromkeys(row.name for row in rows if row.kind == "weft")
    floors = dict.fromkeys(row.name for row in rows if row.kind == "floor")
    peers = {row.name: "--" if row.out_of_place else "-" for row in rows if row.kind == "peer"}
    return {
        **{name: _WEFT_STYLES[place % len(_WEFT_STYLES)] for place, name in enumerate(weft)},
        **{name: _FLOOR_STYLES[place % len(_FLOOR_STYLES)] for place, name in enumerate(floors)},
        **peers,
    }


def _lines(rows: Sequence[BenchRow]) -> list[list[BenchRow]]:
    """Every contender's rows by size; weft's last, above the others."""
    names = dict.fromkeys(row.name for row in rows)
    lines = [sorted((row for row in rows if row.name == name), key=lambda row: row.bytes) for name in names]
    return sorted(lines, key=lambda line: ("floor", "peer", "weft").index(line[0].kind))


def _times(panel: Any, rows: Sequence[BenchRow], styles: dict[str, Any]) -> None:
    for line in _lines([row for row in rows if row.name != _RATE]):
        sizes, name = [row.bytes for row in line], line[0].name
        look = {
            "color": colour(line[0]),
            "linestyle": styles[name],
            "linewidth": 1.1 if line[0].kind == "floor" else 1.7,
        }
        panel.plot(sizes, [row.median_us for row in line], marker="o", markersize=2.5, label=name, **look)
        if line[0].kind != "floor":
            low, high = [row.min_us for row in line], [row.p95_us for row in line]
            panel.fill_between(sizes, low, high, color=colour(line[0]), alpha=0.10, linewidth=0)
    panel.set(xscale="log", yscale="log")
    panel.grid(alpha=0.3)


def _bandwidths(panel: Any, rows: Sequence[BenchRow], styles: dict[str, Any]) -> None:
    for line in _lines([row for row in rows if row.kind != "floor"]):
        name = line[0].name
        look = {"color": colour(line[0]), "linestyle": styles[name], "linewidth": 1.7}
        panel.plot([row.bytes for row in line], [row.busbw_gbs for row in line], marker="o", markersize=2.5, **look)
    panel.set_ylim(bottom=0)
    panel.grid(alpha=0.3)


def _legend(panels: Sequence[Any]) -> tuple[list[Any], list[str]]:
    """Every contender once: weft's first, floors last, in the order of the lines."""
    found: dict[str, Any] = {}
    for panel in panels:
        for line, label in zip(*panel.get_legend_handles_labels(), strict=True):
            found.setdefault(label, line)
    names = list(reversed(found))
    names.sort(key=lambda name: _place(found[name].get_color()))
    return [found[name] for name in names], names
