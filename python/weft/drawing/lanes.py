"""Picture of what happened when: a row for each lane, bars in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from weft.drawing.svg import Canvas
from weft.drawing.ticks import round_ticks

__all__ = ["Bar", "Lane", "draw", "stacked"]

STYLE = {
    "title": "font:bold 14px sans-serif;fill:#222",
    "name": "font:12px sans-serif;fill:#222",
    "axis": "font:10px sans-serif;fill:#555",
    "label": "font:10px sans-serif;fill:#111",
    "row": "fill:#f4f4f4",
    "grid": "stroke:#ddd;stroke-width:1",
    "forward": "fill:#8fd0bd;stroke:#4a9a84",
    "backward": "fill:#b9a5e0;stroke:#7d63b5",
    "update": "fill:#f4b266;stroke:#c07c2a",
    "wait": "fill:#e58a8a;stroke:#b04a4a",
    "average": "fill:#8dbbe8;stroke:#4a82b8",
    "registration": "fill:#c3dc83;stroke:#82a032",
    "copy": "fill:#8fd0bd;stroke:#4a9a84",
    "send": "fill:#8dbbe8;stroke:#4a82b8",
    "reduction": "fill:#f4b266;stroke:#c07c2a",
    "receive": "fill:#5f86b0;stroke:#3c5f86",
    "deregistration": "fill:#b9a5e0;stroke:#7d63b5",
}
KINDS = {
    "forward": "forward",
    "backward": "backward",
    "update": "update of parameters",
    "wait": "wait for communication",
    "average": "average of a bucket",
    "registration": "registration",
    "copy": "copy within memory",
    "send": "send",
    "reduction": "reduction",
    "receive": "wait for what comes",
    "deregistration": "deregistration",
}
"""What a bar can be, in the order of the legend."""

MARGIN_LEFT, MARGIN_RIGHT, HEAD, FOOT = 128, 24, 62, 34
ROW, GAP = 22, 6
WIDTH_OF_CHARACTER = 6.0


@dataclasses.dataclass(frozen=True)
class Bar:
    """Something that took time. Times are in seconds."""

    kind: str
    """One of `KINDS`."""
    label: str
    tip: str
    start: float
    end: float


@dataclasses.dataclass(frozen=True)
class Lane:
    """Bars in one row; later ones lie above earlier ones."""

    name: str
    bars: Sequence[Bar]


def stacked(name: str, bars: Sequence[Bar]) -> list[Lane]:
    """As many lanes as it takes for bars not to overlap."""
    lanes: list[list[Bar]] = []
    for bar in sorted(bars, key=lambda bar: (bar.start, bar.end)):
        free = next((lane for lane in lanes if lane[-1].end <= bar.start), None)
        if free is None:
            lanes.append([bar])
        else:
            free.append(bar)
    return [Lane(name if number == 0 else f"{name} ({number + 1})", lane) for number, lane in enumerate(lanes)]


def draw(title: str, lanes: Sequence[Lane], width: int = 1200) -> str:
    """The picture as SVG, `width` pixels wide. Time begins with the first bar."""
    begin = min((bar.start for lane in lanes for bar in lane.bars), default=0.0)
    seconds = max((bar.end for lane in lanes for bar in lane.bars), default=begin) - begin
    seconds = max(seconds, 1e-9)
    scale = (width - MARGIN_LEFT - MARGIN_RIGHT) / seconds
    bottom = HEAD + len(lanes) * (ROW + GAP)
    canvas = Canvas(width, bottom + FOOT, STYLE)
    canvas.text("title", MARGIN_LEFT, 22, title)
    _legend(canvas, [kind for kind in KINDS if any(bar.kind == kind for lane in lanes for bar in lane.bars)])
    for number, lane in enumerate(lanes):
        top = HEAD + number * (ROW + GAP)
        canvas.rect("row", MARGIN_LEFT, top, width - MARGIN_LEFT - MARGIN_RIGHT, ROW)
        canvas.text("name", MARGIN_LEFT - 8, top + ROW / 2 + 4, lane.name, anchor="end")
    _axis(canvas, seconds, scale, bottom)
    for number, lane in enumerate(lanes):
        # Waits and updates are parts of forward: what takes longer is drawn first.
        for bar in sorted(lane.bars, key=lambda bar: bar.start - bar.end):
            _bar(canvas, bar, MARGIN_LEFT + (bar.start - begin) * scale, HEAD + number * (ROW + GAP), scale)
    return canvas.finish()


def _legend(canvas: Canvas, kinds: Sequence[str]) -> None:
    x: float = MARGIN_LEFT
    for kind in kinds:
        canvas.rect(kind, x, 35, 16, 10)
        canvas.text("axis", x + 21, 44, KINDS[kind])
        x += 34 + 5.4 * len(KINDS[kind])


def _axis(canvas: Canvas, seconds: float, scale: float, bottom: float) -> None:
    for time in round_ticks(seconds):
        x = MARGIN_LEFT + time * scale
        canvas.line("grid", x, HEAD - 6, x, bottom)
        canvas.text("axis", x, bottom + 13, f"{time * 1e3:g}", anchor="middle")
    canvas.text("axis", MARGIN_LEFT + seconds / 2 * scale, bottom + 27, "ms", anchor="middle")


def _bar(canvas: Canvas, bar: Bar, x: float, top: float, scale: float) -> None:
    width = max((bar.end - bar.start) * scale, 0.5)
    milliseconds = (bar.end - bar.start) * 1e3
    canvas.rect(bar.kind, x, top + 1, width, ROW - 2, f"{bar.tip}\n{milliseconds:.4g} ms")
    if width > WIDTH_OF_CHARACTER * len(bar.label) + 4:
        canvas.text("label", x + width / 2, top + ROW / 2 + 3.5, bar.label, anchor="middle")
