"""Tables and progress of commands, as plain text.

Progress goes to standard error, so that the output can be piped.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Sequence

__all__ = ["FIRST_SHOWN_S", "Progress", "Table", "show"]

_GAP = "  "
_WRAPPED_COLUMNS_MIN = 20
"""The narrowest column that is made by wrapping text."""
FIRST_SHOWN_S = 2.0
"""Shorter work shows no progress."""
_SHOWN_EVERY_S = 10.0


class Table:
    """A table without lines: columns are as wide as their widest cell.

    A column whose name begins with `>` is aligned to the right.
    """

    def __init__(self, *columns: str, header: bool = True, title: str = "", widths_min: Sequence[int] = ()) -> None:
        self._right = [column.startswith(">") for column in columns]
        self._rows: list[tuple[str, ...]] = []
        self._title = title
        self._widths_min = [*widths_min, *[0] * (len(columns) - len(widths_min))]
        if header:
            self.add_row(*(column.removeprefix(">") for column in columns))

    def add_row(self, *cells: str) -> None:
        """Adds a row below the others; each cell is one line."""
        self._rows.append(cells)

    def text(self, columns_max: int | None = None) -> str:
        """The table, without spaces at the ends of lines.

        Text of the last column is wrapped where a line would have more than `columns_max`.
        """
        widths = [
            max([least, *map(len, column)]) for least, column in zip(self._widths_min, self._columns(), strict=True)
        ]
        before = sum(widths[:-1]) + len(_GAP) * (len(widths) - 1)
        left = None if columns_max is None else max(columns_max - before, _WRAPPED_COLUMNS_MIN)
        lines = [self._title] if self._title else []
        for row in self._rows:
            last = [row[-1]] if left is None or len(row[-1]) <= left else textwrap.wrap(row[-1], left)
            lines.append(self._line([*row[:-1], last[0]], widths))
            lines += [" " * before + more for more in last[1:]]
        return "\n".join(lines)

    def _columns(self) -> Iterable[tuple[str, ...]]:
        return zip(*self._rows, strict=True) if self._rows else [()] * len(self._right)

    def _line(self, cells: Sequence[str], widths: Sequence[int]) -> str:
        aligned = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, self._right, strict=True)
        )
        return _GAP.join(aligned).rstrip()


def show(*parts: Table | str) -> None:
    """Prints tables and texts one below the other, with the line length of a pipe."""
    columns_max = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for part in parts:
        print(part.text(columns_max) if isinstance(part, Table) else part)
    sys.stdout.flush()


class Progress:
    """Lines on standard error with the completed share and the time left.

    The first is printed after two seconds.
    """

    def __init__(self, what: str, total: float) -> None:
        self.what, self._total, self.done = what, total, 0.0
        self.begin = time.monotonic()
        self._next = self.begin + FIRST_SHOWN_S
        self._first: tuple[float, float] | None = None

    def advance(self, amount: float = 1.0, what: str | None = None) -> None:
        """Adds to the completed part of the total; `what` is next."""
        self.done += amount
        self.what = what or self.what
        now = time.monotonic()
        self._show(now)
        if self._first is None:
            self._first = now, self.done

    def _show(self, now: float) -> None:
        if now >= self._next and self.done < self._total:
            self._next = now + _SHOWN_EVERY_S
            print(f"{self.what}: {self.done / self._total:.0%} done{self._left(now)}", file=sys.stderr, flush=True)

    def _left(self, now: float) -> str:
        """The time left, at the pace since the first part ended: setting up may have taken long."""
        if self._first is None or self._first[1] == self.done:
            return ""
        since, done = self._first
        left_s = (now - since) / (self.done - done) * (self._total - self.done)
        return f", about {max(1, round(left_s))} s left"
