"""Plots of rows: time per call by message size, one panel per number of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from weft.bench.rows import BenchRow
from weft.bench.sizes import show_bytes


def draw(path: Path, rows: Sequence[BenchRow]) -> None:
    """Writes the picture; the file's suffix says in which format."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rank_counts = sorted({row.ranks for row in rows})
    figure, panels = pyplot.subplots(
        1, len(rank_counts), figsize=(6 * len(rank_counts), 4.5), squeeze=False, sharey=True
    )
    for panel, ranks in zip(panels[0], rank_counts, strict=True):
        here = [row for row in rows if row.ranks == ranks]
        for label in dict.fromkeys(row.name for row in here):
            line = sorted((row for row in here if row.name == label), key=lambda row: row.bytes)
            sizes = [row.bytes for row in line]
            style = "--" if line[0].kind == "floor" else "-"
            panel.plot(sizes, [row.median_us for row in line], style, marker="o", markersize=3, label=label)
            panel.fill_between(
                sizes, [row.min_us for row in line], [row.p95_us for row in line], alpha=0.15, linewidth=0
            )
        sizes = sorted({row.bytes for row in here})
        panel.set(xscale="log", yscale="log", xlabel="bytes", title=f"{here[0].collective}, {ranks} ranks")
        panel.set_xticks(sizes, [show_bytes(size) for size in sizes], rotation=60, minor=False)
        panel.minorticks_off()
        panel.grid(alpha=0.3)
        panel.legend()
    panels[0][0].set_ylabel("µs per call, slowest rank (median; shaded: min to p95)")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
