"""Minimal SVG writer for the drawings."""

from __future__ import annotations

from collections.abc import Mapping

from weft.drawing.markup import Markup, element

__all__ = ["Canvas"]


class Canvas:
    """A picture under construction.

    Later elements are drawn above earlier ones. Lengths are in pixels.
    """

    def __init__(self, width: float, height: float, style: Mapping[str, str]) -> None:
        """Begins a picture.

        `style` gives the declarations of each class of elements, as in a style sheet.
        """
        # Literals of this package, which a style sheet contains unescaped.
        rules = Markup("".join(f".{name}{{{declarations}}}" for name, declarations in style.items()))
        size = {"width": _number(width), "height": _number(height)}
        self._size = {**size, "viewBox": f"0 0 {_number(width)} {_number(height)}"}
        self._elements = [element("style", {}, rules), element("rect", {**size, "fill": "#fff"}, empty=True)]

    def rect(self, name: str, x: float, y: float, width: float, height: float, tip: str = "") -> None:
        """A filled box. `tip` is shown when the mouse rests on it."""
        box = {"x": _number(x), "y": _number(y), "width": _number(width), "height": _number(height)}
        self._element("rect", {"class": name, **box}, tip)

    def line(self, name: str, x1: float, y1: float, x2: float, y2: float) -> None:
        """A straight line."""
        ends = {"x1": _number(x1), "y1": _number(y1), "x2": _number(x2), "y2": _number(y2)}
        self._element("line", {"class": name, **ends})

    def arrow(self, name: str, x1: float, y1: float, x2: float, y2: float, tip: str = "") -> None:
        """A straight line with a head at its second end."""
        length = max(((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5, 1e-9)
        along, across = ((x2 - x1) / length, (y2 - y1) / length), (-(y2 - y1) / length, (x2 - x1) / length)
        corners = [(x2 - 5 * along[0] + side * across[0], y2 - 5 * along[1] + side * across[1]) for side in (2, -2)]
        (ax, ay), (bx, by) = corners
        path = (
            f"M{_number(x1)} {_number(y1)}L{_number(x2)} {_number(y2)}"
            f"M{_number(ax)} {_number(ay)}L{_number(x2)} {_number(y2)}L{_number(bx)} {_number(by)}"
        )
        self._element("path", {"class": name, "d": path}, tip)

    def text(self, name: str, x: float, y: float, text: str, anchor: str = "start") -> None:
        """A line of text; `anchor` (`start`, `middle` or `end`) is its point that is at `x`."""
        place = {"x": _number(x), "y": _number(y)} | ({"text-anchor": anchor} if anchor != "start" else {})
        self._elements.append(element("text", {"class": name, **place}, text, empty=not text))

    def finish(self) -> Markup:
        """The picture's text."""
        lines = Markup("\n" + "\n".join(self._elements) + "\n")
        return Markup(element("svg", {"xmlns": "http://www.w3.org/2000/svg", **self._size}, lines) + "\n")

    def _element(self, name: str, attributes: Mapping[str, str], tip: str = "") -> None:
        title = [element("title", {}, tip)] if tip else []
        self._elements.append(element(name, attributes, *title, empty=not tip))


def _number(value: float) -> str:
    """At most one digit after the point: equal text for lengths that differ by rounding only."""
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")
