"""Pictures of schedules, as SVG: small, the same bytes for the same schedule, and without another library."""

from weft.drawing.gantt import Event, Gantt, draw

__all__ = ["Event", "Gantt", "draw"]
