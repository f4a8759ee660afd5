"""Pieces of HTML: tables and pictures."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

__all__ = ["picture", "table"]


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], kinds: Sequence[str] | None = None) -> str:
    """A table of texts.

    Columns whose names begin with `<` are left-aligned; `kinds` are the classes of rows.
    """
    sides = [' class="left"' if name.startswith("<") else "" for name in columns]
    names = (name.removeprefix("<") for name in columns)
    head = "".join(f"<th{side}>{escape(name)}</th>" for side, name in zip(sides, names, strict=True))
    lines = []
    for place, row in enumerate(rows):
        cells = "".join(f"<td{side}>{escape(cell)}</td>" for side, cell in zip(sides, row, strict=True))
        kind = f' class="{kinds[place]}"' if kinds and kinds[place] else ""
        lines.append(f"<tr{kind}>{cells}</tr>")
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def picture(drawing: str, about: str) -> str:
    """An SVG drawing, within the page."""
    data = base64.b64encode(drawing.encode()).decode()
    return f'<img alt="{escape(about)}" src="data:image/svg+xml;base64,{data}">'
