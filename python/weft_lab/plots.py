"""Settings of matplotlib for weft's plots: no display, and texts without markup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["COLOURS", "label_ends", "pyplot", "spread"]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#882255")
"""Eight that differ, also for the colour-blind: `tests/unit/test_pictures.py` computes how much."""

_TO_THE_END = {"arrowstyle": "-", "linewidth": 0.5, "relpos": (0, 0.5), "shrinkA": 1, "shrinkB": 2}
_LABEL_POINTS = 8
_LABEL_GAP = 1.5
"""From one label to the next, in heights of a label."""


def pyplot() -> Any:
    """`matplotlib.pyplot`, with dollar signs in users' names not taken for formulas."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["text.parse_math"] = False
    from matplotlib import pyplot as found

    return found


def label_ends(panel: Any, ends: Mapping[str, tuple[float, float, str]]) -> None:
    """Writes names right of a panel, each at the height of its line's end and in its colour.

    `ends` has the end of each line and its colour. Labels of neighbouring ends are moved apart,
    with a thin line to the end. The panel must have its limits and its place.
    """
    heights = {name: _height(panel, x, y) for name, (x, y, _) in ends.items()}
    names = sorted(ends, key=lambda name: heights[name])
    gap = _LABEL_GAP * _LABEL_POINTS / 72 / _inches(panel)
    places = spread([heights[name] for name in names], gap, 0.0, 1.0)
    for name, place in zip(names, places, strict=True):
        x, y, colour = ends[name]
        panel.annotate(
            name,
            (x, y),
            xytext=(1.04, place),
            textcoords="axes fraction",
            va="center",
            fontsize=_LABEL_POINTS,
            color=colour,
            arrowprops={**_TO_THE_END, "color": colour},
            annotation_clip=False,
        )


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places as near to the wanted ones, which ascend, as a gap between neighbours allows.

    They are within `low` and `high`, unless there are too many of them.
    """
    blocks: list[list[float]] = []  # of the wanted places without their gaps: neighbours share a mean
    for number, place in enumerate(wanted):
        blocks.append([place - number * gap])
        while len(blocks) > 1 and _mean(blocks[-2]) > _mean(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    last_start = max(high - (len(wanted) - 1) * gap, low)
    starts = [min(max(_mean(block), low), last_start) for block in blocks for _ in block]
    return [start + number * gap for number, start in enumerate(starts)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _height(panel: Any, x: float, y: float) -> float:
    """The height of a point, as a share of the panel's."""
    pixels = panel.transData.transform((x, y))
    return float(panel.transAxes.inverted().transform(pixels)[1])


def _inches(panel: Any) -> float:
    """How high a panel is."""
    return float(panel.get_position().height * panel.figure.get_figheight())
