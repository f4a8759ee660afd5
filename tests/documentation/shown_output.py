"""Comparison of the output that a page shows behind a command with what the command prints.

Numbers and their units are masked, and white space counts as one space, since widths of tables
follow from them. In a page's output, `...` within a line stands for any text, and a line `...` for
any number of lines. Without such a line, the order of lines does not count, and they may share a
line: ranks print in any order, and torchrun makes them write a text and its end one by one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Step", "difference", "steps"]

_DIGITS = r"[-+]?\d[\d.,:]*(?:e[-+]?\d+)?"
_UNIT = r"[^\S\n]*(?:ns|us|ms|s|B|K|M|G|[KMG]i?B|%|x)"
_NUMBER = re.compile(rf"{_DIGITS}({_UNIT})?(?![^\W\d_])")
_ANY = "..."


@dataclass(frozen=True)
class Step:
    """A command of a page, and the lines that the page shows behind it."""

    command: str
    shown: Sequence[str]


def steps(block: str) -> list[Step]:
    """The commands of a `console` block, whose lines begin with `$ `, with their output."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line.removeprefix("$ "), []))
        elif found:
            found[-1][1].append(line)
    return [Step(command, shown) for command, shown in found]


def difference(shown: Sequence[str], printed: str) -> str | None:
    """The first line that a page shows and that was not printed there; None if all agrees."""
    lines = [line for line in shown if line.strip()]
    if not any(line.strip() == _ANY for line in lines):
        return _difference_in_any_order(lines, printed)
    text = "".join(f"{masked(line)}\n" for line in printed.splitlines() if line.strip())
    patterns = [_pattern(line) for line in lines]
    if re.fullmatch("".join(patterns), text):
        return None
    for count, line in enumerate(lines, 1):
        if not re.match("".join(patterns[:count]), text):
            return f"shown, and not printed there: {line!r}"
    return f"printed more than is shown behind {lines[-1]!r}"


def _difference_in_any_order(lines: Sequence[str], printed: str) -> str | None:
    text = "\n".join(" ".join(line.split()) for line in printed.splitlines())
    for line in sorted(lines, key=len, reverse=True):
        text, count = re.subn(_pattern_within_line(" ".join(line.split())), " ", text, count=1)
        if count == 0:
            return f"shown, and not printed there: {line!r}"
    return f"printed, and not shown: {text.strip()!r}" if text.strip() else None


def _pattern_within_line(line: str) -> str:
    """A line, behind whose numbers the text of another rank may follow at once."""
    pattern, end = "", 0
    for number in _NUMBER.finditer(line):
        # A number shown without a unit takes none, which would be the next line's first letter.
        pattern += _text(line[end : number.start()]) + _DIGITS + (f"(?:{_UNIT})?" if number[1] else "")
        end = number.end()
    return pattern + _text(line[end:])


def _text(shown: str) -> str:
    return re.escape(shown).replace(re.escape(_ANY), ".*")


def masked(line: str) -> str:
    """A line with its numbers as `#`, and with single spaces."""
    return " ".join(_NUMBER.sub("#", line).split())


def _pattern(line: str) -> str:
    if line.strip() == _ANY:
        return "(?:.*\n)*?"
    return ".*".join(re.escape(masked(part)).strip() for part in line.split(_ANY)) + "\n"
