"""Filling of generated Markdown: lines of prose of at most 100 columns."""

from __future__ import annotations

import re
import textwrap

__all__ = ["filled"]

COLUMNS = 100
_ITEM = re.compile(r"(- |\d+\. )")
_AS_IT_IS = re.compile(r"(\||#|<|>|    |```|$)")
"""Tables, headings, comments, code and empty lines."""


def filled(page: str) -> str:
    """The page with its paragraphs and items filled; everything else is unchanged."""
    lines: list[str] = []
    fences = 0
    paragraph: list[str] = []
    for line in page.splitlines():
        fences += line.startswith("```")
        if fences % 2 or _AS_IT_IS.match(line):
            lines += _paragraph(paragraph)
            paragraph = []
            lines.append(line)
        elif _ITEM.match(line):
            lines += _paragraph(paragraph)
            paragraph = [line]
        else:
            paragraph.append(line)
    return "\n".join([*lines, *_paragraph(paragraph)]) + "\n"


def _paragraph(lines: list[str]) -> list[str]:
    text = " ".join(line.strip() for line in lines)
    item = _ITEM.match(text)
    indent = " " * len(item.group()) if item else ""
    # A space within a code span breaks no line.
    spans = re.split(r"(`[^`]*`)", text)
    glued = "".join(part.replace(" ", "\0") if part.startswith("`") else part for part in spans)
    wrapped = textwrap.wrap(glued, COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\0", " ") for line in wrapped]
