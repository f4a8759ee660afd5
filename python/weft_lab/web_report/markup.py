"""Pieces of HTML: tables and pictures."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from weft.drawing.markup import Markup, element

__all__ = ["picture", "table"]


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], kinds: Sequence[str] | None = None) -> Markup:
    """A table of texts.

    Columns whose names begin with `<` are left-aligned; `kinds` are the classes of rows.
    """
    sides = [{"class": "left"} if name.startswith("<") else {} for name in columns]
    names = (name.removeprefix("<") for name in columns)
    head = (element("th", side, name) for side, name in zip(sides, names, strict=True))
    lines = []
    for place, row in enumerate(rows):
        cells = (element("td", side, cell) for side, cell in zip(sides, row, strict=True))
        lines.append(element("tr", {"class": kinds[place]} if kinds and kinds[place] else {}, *cells))
    body = element("thead", {}, element("tr", {}, *head)), element("tbody", {}, *lines)
    return element("div", {"class": "scroll"}, element("table", {}, *body))


def picture(drawing: str, about: str) -> Markup:
    """An SVG drawing, within the page, where it can neither run scripts nor fetch anything."""
    data = base64.b64encode(drawing.encode()).decode()
    return element("img", {"alt": about, "src": f"data:image/svg+xml;base64,{data}"}, empty=True)
