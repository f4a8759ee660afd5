"""Stages of tiles: rank 0's steps with each part of a message during one traced call."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from weft.drawing.lanes import Bar, draw, stacked
from weft.quantities import show_bytes

__all__ = ["STAGES", "StageSpan", "picture"]

STAGES = ("registration", "copy", "send", "reduction", "receive", "deregistration")
"""In the order of a tile's path, and of the picture's rows."""


@dataclasses.dataclass(frozen=True)
class StageSpan:
    """A step with a tile; a registration of several has the first one's number."""

    stage: str
    """One of `STAGES`."""
    operation: int
    tile: int
    nbytes: int
    """0 if it is not known, as for received data."""
    begin_ns: int
    """Times of the monotonic clock."""
    end_ns: int

    def bar(self) -> Bar:
        """Its bar in the picture."""
        size = f", {show_bytes(self.nbytes)}" if self.nbytes else ""
        tip = f"{self.stage} of tile {self.tile}{size}"
        return Bar(self.stage, str(self.tile), tip, self.begin_ns * 1e-9, self.end_ns * 1e-9)


def picture(title: str, spans: Iterable[StageSpan]) -> str:
    """The picture as SVG: as many rows for each stage as it had under way at the same time."""
    known = list(spans)
    lanes = [lane for stage in STAGES for lane in stacked(stage, [span.bar() for span in known if span.stage == stage])]
    return draw(title, lanes)
