"""Plot of predictions and measurements, one panel per setting."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benches.model.compare import ComparedSetting, error
from weft.quantities import show_bytes

__all__ = ["draw"]


def draw(path: Path, compared: Sequence[ComparedSetting]) -> None:
    """Writes it: lines are predictions, dots are measurements."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(compared), figsize=(5.2 * len(compared), 6), squeeze=False)
    names = list(dict.fromkeys(cell.algorithm for one in compared for cell in one.cells))
    shades = pyplot.get_cmap("tab20")
    colors = {name: shades(index % 20) for index, name in enumerate(names)}
    for panel, one in zip(panels[0], compared, strict=True):
        for name in names:
            line = sorted((c for c in one.cells if c.algorithm == name), key=lambda cell: cell.bytes)
            sizes = [cell.bytes for cell in line]
            panel.plot(sizes, [cell.predicted_us for cell in line], color=colors[name], label=name, linewidth=1)
            panel.plot(sizes, [cell.measured_us for cell in line], "o", color=colors[name], markersize=3)
        sizes = sorted({cell.bytes for cell in one.cells})
        panel.set(xscale="log", yscale="log", xlabel="bytes")
        panel.set_title(f"{one.setting.name}: median error {error(one.cells):.0%}")
        panel.set_xticks(sizes, [show_bytes(size) for size in sizes], rotation=60, minor=False)
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    panels[0][0].set_ylabel("µs per call, slowest rank (line: predicted, dots: measured medians)")
    panels[0][-1].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
