"""Gantt chart of a schedule: a row for each rank, a bar for each step, an arrow for each signal."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from weft.drawing.markup import Markup
from weft.drawing.svg import Canvas
from weft.drawing.ticks import round_ticks

__all__ = ["GanttEvent", "Gantt", "draw"]

STYLE = {
    "title": "font:bold 14px sans-serif;fill:#222",
    "name": "font:12px sans-serif;fill:#222",
    "axis": "font:10px sans-serif;fill:#555",
    "label": "font:10px sans-serif;fill:#111",
    "row": "fill:#f4f4f4",
    "grid": "stroke:#ddd;stroke-width:1",
    "copy": "fill:#8fd0bd;stroke:#4a9a84",
    "put": "fill:#c3dc83;stroke:#82a032",
    "read": "fill:#b9a5e0;stroke:#7d63b5",
    "reduce": "fill:#f4b266;stroke:#c07c2a",
    "send": "fill:#8dbbe8;stroke:#4a82b8",
    "receive": "fill:#5f86b0;stroke:#3c5f86",
    "wait": "fill:#d4d4d4",
    "transfer": "fill:none;stroke:#2f6cab;stroke-width:1.2",
    "signal": "fill:none;stroke:#999;stroke-width:0.8;stroke-dasharray:3 2",
    "carried": "font:9px sans-serif;fill:#2f6cab;stroke:#fff;stroke-width:2.5;paint-order:stroke",
}
KINDS = {
    "copy": "copy",
    "put": "copy to a peer's memory",
    "read": "copy from a peer's memory",
    "reduce": "reduce",
    "send": "send",
    "receive": "receive",
    "wait": "a tile waits",
    "transfer": "bytes on the network, and a signal",
    "signal": "signal",
}
"""The kinds of events, in the order of the legend."""

ARROWS = ("transfer", "signal")
MARGIN_LEFT, MARGIN_RIGHT, HEAD, FOOT = 64, 24, 62, 34
LANE, STRIP, GAP = 20, 5, 12
WIDTH_OF_CHARACTER = 6.0
LABELLED_ARROWS_MAX = 60


@dataclasses.dataclass(frozen=True)
class GanttEvent:
    """An event of a simulation with a duration. Times are in seconds."""

    rank: int
    kind: str
    """One of `KINDS`."""
    label: str
    """The chunks."""
    text: str
    """The step in text form."""
    start: float
    end: float
    peer: int | None = None
    """The receiver of a transfer or signal; the rank that a wait is for."""
    tile: int | None = None


@dataclasses.dataclass(frozen=True)
class Gantt:
    """The content of a picture."""

    title: str
    ranks: int
    events: Sequence[GanttEvent]


def draw(gantt: Gantt, width: int = 960) -> str:
    """The picture, `width` pixels wide.

    A row for each rank with the work of its thread, and its tiles that wait.
    """
    # An event without a tile is the executor's: the permission to use temporary memory again.
    gantt = dataclasses.replace(gantt, events=[event for event in gantt.events if event.tile is not None])
    waits = [_strips([e for e in gantt.events if e.rank == rank and e.kind == "wait"]) for rank in range(gantt.ranks)]
    heights = [LANE + STRIP * max([strip + 1 for _, strip in row], default=0) for row in waits]
    tops = [HEAD + sum(heights[:rank]) + GAP * rank for rank in range(gantt.ranks)]
    bottom = tops[-1] + heights[-1] + GAP / 2
    scale = _Scale(max([event.end for event in gantt.events], default=0.0), width - MARGIN_LEFT - MARGIN_RIGHT)
    canvas = Canvas(width, bottom + FOOT, STYLE)
    canvas.text("title", MARGIN_LEFT, 22, gantt.title)
    _legend(canvas, [kind for kind in KINDS if any(event.kind == kind for event in gantt.events)])
    for rank, (top, height) in enumerate(zip(tops, heights, strict=True)):
        canvas.rect("row", MARGIN_LEFT, top, width - MARGIN_LEFT - MARGIN_RIGHT, height)
        canvas.text("name", MARGIN_LEFT - 8, top + LANE / 2 + 4, f"rank {rank}", anchor="end")
    _axis(canvas, scale, bottom)
    for top, row in zip(tops, waits, strict=True):
        for event, strip in row:
            y = top + LANE + STRIP * strip + 0.5
            canvas.rect(
                "wait", scale.x(event.start), y, scale.x(event.end) - scale.x(event.start), STRIP - 1, _tip(event)
            )
    for event in gantt.events:
        if event.kind not in ("wait", *ARROWS):
            _bar(canvas, scale, event, tops[event.rank])
    _arrows(canvas, scale, [event for event in gantt.events if event.kind in ARROWS], tops)
    return canvas.finish()


class _Scale:
    """The mapping of times to the axis."""

    def __init__(self, end_s: float, width: float) -> None:
        self.end_us = max(end_s * 1e6, 1e-3)
        self._pixels_per_s = width / (self.end_us * 1e-6)

    def x(self, time_s: float) -> float:
        return MARGIN_LEFT + time_s * self._pixels_per_s


def _strips(waits: Sequence[GanttEvent]) -> list[tuple[GanttEvent, int]]:
    """Each wait with its place below the thread.

    Simultaneous waits of several tiles are drawn below each other.
    """
    free_from: list[float] = []
    placed = []
    for event in sorted(waits, key=lambda event: (event.start, event.tile or 0)):
        free = [strip for strip, time in enumerate(free_from) if time <= event.start]
        strip = free[0] if free else len(free_from)
        free_from[strip : strip + 1] = [event.end]
        placed.append((event, strip))
    return placed


def _legend(canvas: Canvas, kinds: Sequence[str]) -> None:
    x: float = MARGIN_LEFT
    for kind in kinds:
        if kind in ARROWS:
            canvas.arrow(kind, x, 44, x + 16, 36)
        else:
            canvas.rect(kind, x, 35, 16, 10)
        canvas.text("axis", x + 21, 44, Markup(KINDS[kind]))
        x += 34 + 5.2 * len(KINDS[kind])


def _axis(canvas: Canvas, scale: _Scale, bottom: float) -> None:
    for time in round_ticks(scale.end_us):
        x = scale.x(time * 1e-6)
        canvas.line("grid", x, HEAD - 6, x, bottom)
        canvas.text("axis", x, bottom + 13, f"{time:g}", anchor="middle")
    canvas.text("axis", scale.x(scale.end_us * 5e-7), bottom + 27, "µs", anchor="middle")


def _bar(canvas: Canvas, scale: _Scale, event: GanttEvent, top: float) -> None:
    x = scale.x(event.start)
    width = max(scale.x(event.end) - x, 1.0)
    canvas.rect(event.kind, x, top + 1, width, LANE - 2, _tip(event))
    if width > WIDTH_OF_CHARACTER * len(event.label) + 4:
        canvas.text("label", x + width / 2, top + LANE / 2 + 3.5, event.label, anchor="middle")


def _arrows(canvas: Canvas, scale: _Scale, arrows: Sequence[GanttEvent], tops: Sequence[float]) -> None:
    """Arrows from the sender's row to the receiver's.

    The chunks are written beside the arrow, unless there are too many arrows.
    """
    labelled = sum(event.kind == "transfer" for event in arrows) <= LABELLED_ARROWS_MAX
    labels = []
    for event in arrows:
        if event.peer is None:
            continue
        down = tops[event.peer] > tops[event.rank]
        begin = scale.x(event.start), tops[event.rank] + (LANE if down else 0)
        end = scale.x(event.end), tops[event.peer] + (0 if down else LANE)
        canvas.arrow(event.kind, *begin, *end, _tip(event))
        if event.kind == "transfer" and labelled:
            # Near the sender: in the middle, arrows cross.
            x, y = (begin[axis] + 0.25 * (end[axis] - begin[axis]) for axis in (0, 1))
            labels.append((x, y + 3, event.label))
    for x, y, label in labels:
        canvas.text("carried", x, y, label, anchor="middle")


def _tip(event: GanttEvent) -> str:
    tile = "" if event.tile is None else f", tile {event.tile}"
    return f"{event.text}\n{event.start * 1e6:.4g} to {event.end * 1e6:.4g} µs{tile}"
