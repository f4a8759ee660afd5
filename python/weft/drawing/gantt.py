"""A Gantt picture of a schedule: a row for each rank, a bar for each step, an arrow for each signal."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from weft.drawing.svg import Canvas

__all__ = ["Event", "Gantt", "draw"]

STYLE = {
    "title": "font:bold 14px sans-serif;fill:#222",
    "name": "font:12px sans-serif;fill:#222",
    "axis": "font:10px sans-serif;fill:#555",
    "label": "font:10px sans-serif;fill:#111",
    "row": "fill:#f4f4f4",
    "grid": "stroke:#ddd;stroke-width:1",
    "copy": "fill:#8fd0bd;stroke:#4a9a84",
    "put": "fill:#8dbbe8;stroke:#4a82b8",
    "read": "fill:#b9a5e0;stroke:#7d63b5",
    "reduce": "fill:#f4b266;stroke:#c07c2a",
    "wait": "fill:#dedede;stroke:#bbb",
    "signal": "fill:none;stroke:#444;stroke-width:1",
}
KINDS = {
    "copy": "copy within a rank",
    "put": "copy to a peer (put)",
    "read": "copy from a peer's memory",
    "reduce": "reduce",
    "wait": "wait",
    "signal": "signal",
}
"""What a step can be, in the order of the legend."""

MARGIN_LEFT, MARGIN_RIGHT, HEAD, FOOT = 64, 24, 62, 34
LANE, GAP = 20, 14
WIDTH_OF_CHARACTER = 6.0


@dataclasses.dataclass(frozen=True)
class Event:
    """One step as it was played. Times are in seconds."""

    rank: int
    tile: int
    kind: str
    label: str
    """What stands in the bar: its chunks."""
    text: str
    """The step in text form."""
    start: float
    end: float
    peer: int | None = None
    """Of a signal: who is told; of a wait: who tells."""
    signal: int | None = None
    """Of a signal or a wait: its number among the signals of the two ranks."""


@dataclasses.dataclass(frozen=True)
class Gantt:
    """What is drawn."""

    title: str
    ranks: int
    events: Sequence[Event]


@dataclasses.dataclass(frozen=True)
class _Bar:
    """An event with its place in its rank's row."""

    event: Event
    lane: int


def draw(gantt: Gantt, width: int = 960) -> str:
    """The picture, `width` pixels wide."""
    rows = [_lanes([event for event in gantt.events if event.rank == rank]) for rank in range(gantt.ranks)]
    heights = [max([bar.lane + 1 for bar in row], default=1) * LANE for row in rows]
    tops = [HEAD + sum(heights[:rank]) + GAP * rank for rank in range(gantt.ranks)]
    bottom = tops[-1] + heights[-1] + GAP / 2
    scale = _Scale(max([event.end for event in gantt.events], default=0.0), width - MARGIN_LEFT - MARGIN_RIGHT)
    canvas = Canvas(width, bottom + FOOT, STYLE)
    canvas.text("title", MARGIN_LEFT, 22, gantt.title)
    _legend(canvas, [kind for kind in KINDS if any(event.kind == kind for event in gantt.events)])
    for rank, (top, height) in enumerate(zip(tops, heights, strict=True)):
        canvas.rect("row", MARGIN_LEFT, top, width - MARGIN_LEFT - MARGIN_RIGHT, height)
        canvas.text("name", MARGIN_LEFT - 8, top + height / 2 + 4, f"rank {rank}", anchor="end")
    _axis(canvas, scale, bottom)
    for top, row in zip(tops, rows, strict=True):
        for bar in row:
            _bar(canvas, scale, bar, top)
    middles = [{bar.event: top + (bar.lane + 0.5) * LANE for bar in row} for top, row in zip(tops, rows, strict=True)]
    _arrows(canvas, scale, gantt.events, {event: y for row in middles for event, y in row.items()})
    return canvas.finish()


class _Scale:
    """Where a time lies."""

    def __init__(self, end_s: float, width: float) -> None:
        self.end_us = max(end_s * 1e6, 1e-3)
        self._pixels_per_s = width / (self.end_us * 1e-6)

    def x(self, time_s: float) -> float:
        return MARGIN_LEFT + time_s * self._pixels_per_s

    def ticks_us(self) -> list[float]:
        """About ten round numbers."""
        power = 10.0 ** math.floor(math.log10(self.end_us / 10))
        step = next(power * factor for factor in (1, 2, 5, 10) if self.end_us / (power * factor) <= 12)
        return [step * index for index in range(int(self.end_us / step) + 1)]


def _lanes(events: Sequence[Event]) -> list[_Bar]:
    """Side by side what happens at the same time: the steps of several tiles."""
    free_from: list[float] = []
    lane_of_tile: dict[int, int] = {}
    bars = []
    for event in sorted(events, key=lambda event: (event.start, event.tile)):
        tolerance = 1e-12
        lane = lane_of_tile.get(event.tile)
        if lane is None or free_from[lane] > event.start + tolerance:
            free = [index for index, time in enumerate(free_from) if time <= event.start + tolerance]
            lane = free[0] if free else len(free_from)
        if lane == len(free_from):
            free_from.append(0.0)
        free_from[lane] = max(free_from[lane], event.end)
        lane_of_tile[event.tile] = lane
        bars.append(_Bar(event, lane))
    return bars


def _legend(canvas: Canvas, kinds: Sequence[str]) -> None:
    x: float = MARGIN_LEFT
    for kind in kinds:
        if kind == "signal":
            canvas.arrow(kind, x, 44, x + 16, 36)
        else:
            canvas.rect(kind, x, 35, 16, 10)
        canvas.text("axis", x + 21, 44, KINDS[kind])
        x += 40 + WIDTH_OF_CHARACTER * len(KINDS[kind])


def _axis(canvas: Canvas, scale: _Scale, bottom: float) -> None:
    for time in scale.ticks_us():
        x = scale.x(time * 1e-6)
        canvas.line("grid", x, HEAD - 6, x, bottom)
        canvas.text("axis", x, bottom + 13, f"{time:g}", anchor="middle")
    canvas.text("axis", scale.x(scale.end_us * 5e-7), bottom + 27, "µs", anchor="middle")


def _bar(canvas: Canvas, scale: _Scale, bar: _Bar, top: float) -> None:
    event = bar.event
    if event.kind == "signal":
        return
    x, y = scale.x(event.start), top + bar.lane * LANE
    width = max(scale.x(event.end) - x, 1.0)
    tip = f"{event.text}\n{event.start * 1e6:.3g} to {event.end * 1e6:.3g} µs"
    inset = 6 if event.kind == "wait" else 1
    canvas.rect(event.kind, x, y + inset, width, LANE - 2 * inset, tip)
    if event.kind != "wait" and width > WIDTH_OF_CHARACTER * len(event.label) + 4:
        canvas.text("label", x + width / 2, y + LANE / 2 + 3.5, event.label, anchor="middle")


def _arrows(canvas: Canvas, scale: _Scale, events: Sequence[Event], y_of: dict[Event, float]) -> None:
    """From where a signal is sent to where it has been waited for."""
    waits = {(event.rank, event.peer, event.tile, event.signal): event for event in events if event.kind == "wait"}
    for event in events:
        wait = waits.get((event.peer if event.peer is not None else -1, event.rank, event.tile, event.signal))
        if event.kind == "signal" and wait is not None:
            ends = (scale.x(event.start), y_of[event], scale.x(wait.end), y_of[wait])
            canvas.arrow("signal", *ends, tip=f"rank {event.rank}: {event.text}")
