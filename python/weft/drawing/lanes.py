"""Timeline picture: a row for each lane, bars in it."""

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
"""The kinds of bars, in the order of the legend."""

MARGIN_LEFT, MARGIN_RIGHT, HEAD, FOOT = 128, 24, 62, 34
ROW, LINE, GAP = 22, 15, 6
"""Heights of a row, of a line of a divided row, and of what is between rows."""
WIDTH_OF_CHARACTER = 6.0


@dataclasses.dataclass(frozen=True)
class Bar:
    """A part of a lane with a duration. Times are in seconds."""

    kind: str
    """One of `KINDS`."""
    label: str
    tip: str
    start: float
    end: float
    short: str = ""
    """The label where the bar is too narrow for the whole one."""


@dataclasses.dataclass(frozen=True)
class Lane:
    """Bars in one row; later ones are drawn above earlier ones."""

    name: str
    bars: Sequence[Bar]
    divided: bool = False
    """Whether the row is divided into lines where bars overlap, so that none covers another."""


def stacked(name: str, bars: Sequence[Bar]) -> list[Lane]:
    """As many lanes as it takes for bars not to overlap."""
    return [
        Lane(name if number == 0 else f"{name} ({number + 1})", line)
        for number, line in enumerate(_without_overlap(bars))
    ]


def _without_overlap(bars: Sequence[Bar]) -> list[list[Bar]]:
    """The bars in as few lines as it takes for them not to overlap."""
    lines: list[list[Bar]] = []
    for bar in sorted(bars, key=lambda bar: (bar.start, bar.end)):
        free = next((line for line in lines if line[-1].end <= bar.start), None)
        if free is None:
            lines.append([bar])
        else:
            free.append(bar)
    return lines


@dataclasses.dataclass(frozen=True)
class _Row:
    """A lane as it is drawn: its lines from the top down, and how high each of them is."""

    name: str
    lines: Sequence[Sequence[Bar]]
    top: float
    line_height: float

    @property
    def height(self) -> float:
        return self.line_height * len(self.lines)


def _rows(lanes: Sequence[Lane]) -> list[_Row]:
    rows: list[_Row] = []
    for lane in lanes:
        lines = _without_overlap(lane.bars) if lane.divided else [lane.bars]
        top = rows[-1].top + rows[-1].height + GAP if rows else HEAD
        rows.append(_Row(lane.name, lines, top, ROW if len(lines) == 1 else LINE))
    return rows


def draw(title: str, lanes: Sequence[Lane], width: int = 1200) -> str:
    """The picture as SVG, `width` pixels wide. Time begins with the first bar."""
    begin = min((bar.start for lane in lanes for bar in lane.bars), default=0.0)
    seconds = max((bar.end for lane in lanes for bar in lane.bars), default=begin) - begin
    seconds = max(seconds, 1e-9)
    scale = (width - MARGIN_LEFT - MARGIN_RIGHT) / seconds
    rows = _rows(lanes)
    bottom = rows[-1].top + rows[-1].height + GAP if rows else HEAD
    canvas = Canvas(width, bottom + FOOT, STYLE)
    canvas.text("title", MARGIN_LEFT, 22, title)
    _legend(canvas, [kind for kind in KINDS if any(bar.kind == kind for lane in lanes for bar in lane.bars)])
    for row in rows:
        canvas.rect("row", MARGIN_LEFT, row.top, width - MARGIN_LEFT - MARGIN_RIGHT, row.height)
        canvas.text("name", MARGIN_LEFT - 8, row.top + row.height / 2 + 4, row.name, anchor="end")
    _axis(canvas, seconds, scale, bottom)
    for row in rows:
        for number, line in enumerate(row.lines):
            top = row.top + number * row.line_height
            # Waits are parts of forward: longer bars are drawn first.
            for bar in sorted(line, key=lambda bar: bar.start - bar.end):
                label_at = [MARGIN_LEFT + (time - begin) * scale for time in _uncovered(bar, line)]
                _bar(canvas, bar, MARGIN_LEFT + (bar.start - begin) * scale, top, row.line_height, scale, label_at)
    return canvas.finish()


def _uncovered(bar: Bar, line: Sequence[Bar]) -> tuple[float, float]:
    """The longest part of a bar that no shorter bar of its line lies on."""
    length = bar.end - bar.start
    above = sorted((o.start, o.end) for o in line if o.end - o.start < length and bar.start <= o.start < bar.end)
    edges = [bar.start, *(edge for span in above for edge in span), bar.end]
    gaps = zip(edges[::2], edges[1::2], strict=True)
    return max(gaps, key=lambda gap: gap[1] - gap[0])


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


def _bar(
    canvas: Canvas, bar: Bar, x: float, top: float, height: float, scale: float, label_at: Sequence[float]
) -> None:
    width = max((bar.end - bar.start) * scale, 0.5)
    milliseconds = (bar.end - bar.start) * 1e3
    canvas.rect(bar.kind, x, top + 1, width, height - 2, f"{bar.tip}\n{milliseconds:.4g} ms")
    left, right = label_at
    free = right - left
    label = next((one for one in (bar.label, bar.short) if one and free > WIDTH_OF_CHARACTER * len(one) + 1), "")
    if label:
        canvas.text("label", left + free / 2, top + height / 2 + 3.5, label, anchor="middle")
