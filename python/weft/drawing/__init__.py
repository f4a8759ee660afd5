"""Drawings of schedules as SVG: compact, deterministic, without another library."""

from weft.drawing.gantt import Gantt, GanttEvent, draw

__all__ = ["GanttEvent", "Gantt", "draw"]
