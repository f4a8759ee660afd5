"""Markup of pages and pictures: elements whose texts and attributes are escaped.

Names come from files and users. Only `element` and literals of this package make `Markup`; all else
is text, which can become neither an element nor an attribute, and loses the characters that XML
forbids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from html import escape

__all__ = ["Markup", "element", "joined", "printable"]

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Control characters, halves of pairs, and non-characters, which XML forbids."""


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def element(name: str, attributes: Mapping[str, object], *content: object, empty: bool = False) -> Markup:
    """An element with attributes and content, which are escaped unless they are `Markup`.

    An `empty` one has neither content nor an end tag: `<name/>`.
    """
    head = "".join(f' {key}="{joined([value])}"' for key, value in attributes.items())
    return Markup(f"<{name}{head}/>" if empty else f"<{name}{head}>{joined(content)}</{name}>")


def joined(parts: Iterable[object]) -> Markup:
    """Pieces of markup and of text, one after the other."""
    return Markup("".join(part if isinstance(part, Markup) else _escaped(part) for part in parts))


def printable(text: str) -> str:
    """The text with a substitute for each character that pictures and pages cannot contain."""
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)


def _escaped(value: object) -> str:
    return escape(printable(str(value)))
