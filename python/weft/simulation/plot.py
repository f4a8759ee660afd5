"""Plot of simulated times by size and by number of ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.bench.sizes import show_bytes
from weft.simulation.simulator import SimulatedRow

__all__ = ["draw"]


def draw(
    path: Path,
    title: str,
    sizes: Sequence[int],
    rows: Sequence[SimulatedRow],
    scaling: Sequence[tuple[int, Mapping[str, float]]],
) -> None:
    """Writes the picture; the file's suffix says in which format."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = 2 if scaling else 1
    figure, axes = pyplot.subplots(1, panels, figsize=(6 * panels + 3, 5), squeeze=False, layout="constrained")
    names = [row.algorithm for row in rows if row.times_s]
    colours = {name: f"C{index % 10}" for index, name in enumerate(names)}
    dashes = {name: ("-", "--", ":", "-.")[index // 10 % 4] for index, name in enumerate(names)}
    for row in rows:
        if row.times_s:
            _line(axes[0][0], sizes, row.times_s, row.algorithm, colours, dashes)
    _axes(axes[0][0], title, "bytes")
    axes[0][0].set_xticks(sizes, [show_bytes(size) for size in sizes], rotation=60, minor=False)
    axes[0][0].minorticks_off()
    if scaling:
        for name in names:
            points = [(ranks, times[name]) for ranks, times in scaling if name in times]
            if points:
                x, y = zip(*points, strict=True)
                _line(axes[0][1], x, y, name, colours, dashes)
        _axes(axes[0][1], f"messages of {show_bytes(sizes[-1])}", "ranks")
    figure.legend(loc="outside right upper", fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _line(
    panel: Any,
    x: Sequence[int],
    times_s: Sequence[float],
    name: str,
    colours: Mapping[str, str],
    dashes: Mapping[str, str],
) -> None:
    style = {"color": colours[name], "linestyle": dashes[name], "marker": "o", "markersize": 3}
    label = name if name not in panel.figure.axes[0].get_legend_handles_labels()[1] else None
    panel.plot(x, [time * 1e6 for time in times_s], label=label, **style)


def _axes(panel: Any, title: str, label: str) -> None:
    panel.set(xscale="log", yscale="log", xlabel=label, ylabel="µs", title=title)
    panel.grid(alpha=0.3)
