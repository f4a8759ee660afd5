"""Plot of the verdicts: measured ratio and target by size, one panel per table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benches.targets import TargetVerdict
from weft.quantities import show_bytes

_COLUMNS = 3


def draw(path: Path, verdicts: Sequence[TargetVerdict]) -> None:
    """Writes it."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = [name for name in dict.fromkeys(v.table for v in verdicts) if _is_curve(verdicts, name)]
    lines = -(-len(names) // _COLUMNS)
    figure, panels = pyplot.subplots(lines, _COLUMNS, figsize=(5.4 * _COLUMNS, 4.2 * lines), squeeze=False)
    for panel in panels.flat[len(names) :]:
        panel.set_visible(False)
    for panel, name in zip(panels.flat, names, strict=False):
        here = sorted((v for v in verdicts if v.table == name), key=lambda v: v.bytes)
        places = range(len(here))
        panel.plot(places, [v.target for v in here], "k_", markersize=18, label="target")
        for met, color in ((True, "tab:green"), (False, "tab:red")):
            chosen = [place for place in places if here[place].met == met]
            panel.plot(chosen, [here[place].measured for place in chosen], "o", color=color)
        for place, verdict in zip(places, here, strict=True):
            if not verdict.at_most:
                panel.annotate(verdict.of, (place, verdict.measured), rotation=60, fontsize=6, alpha=0.7)
        panel.set_yscale("log", base=2)
        panel.yaxis.set_major_formatter("{x:g}")
        panel.set_title(name)
        panel.set_xticks(places, [show_bytes(v.bytes) for v in here], rotation=60)
        panel.title.set_fontsize(9)
        panel.grid(alpha=0.3)
        panel.legend()
    figure.supylabel("ratio (green: met, red: missed)")
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _is_curve(verdicts: Sequence[TargetVerdict], table: str) -> bool:
    return len({verdict.bytes for verdict in verdicts if verdict.table == table}) > 1
