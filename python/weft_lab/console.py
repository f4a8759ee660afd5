"""Tables, colours and progress of commands, by rich.

Colours appear on terminals only, and never if `NO_COLOR` is set, which rich checks. Progress goes
to standard error, so that the output can be piped.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO

from weft.output.plain_text import FIRST_SHOWN_S, Progress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.table import Table

__all__ = ["Progress", "console", "new_table", "progress", "rendered", "show"]

_PIPED_COLUMNS = 4096
"""Away from a terminal, lines have any length."""


def console(file: TextIO | None = None) -> Console:
    """The console for standard output, or for another file."""
    from rich.console import Console

    stream = sys.stdout if file is None else file
    width = None if stream.isatty() else _PIPED_COLUMNS
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False, soft_wrap=False)


def new_table(*columns: str | tuple[str, dict[str, Any]], header: bool = True, title: str | None = None) -> Table:
    """An empty table without lines.

    A column is its name, right-aligned if it begins with `>`, optionally with options of rich.
    """
    from rich.table import Table

    table = Table(box=None, show_header=header, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.title, table.title_justify, table.title_style = title, "left", "bold"
    for column in columns:
        name, options = column if isinstance(column, tuple) else (column, {})
        right = name.startswith(">")
        given = {"justify": "right" if right else "left", "no_wrap": True, "overflow": "fold", **options}
        table.add_column(name.removeprefix(">"), **given)
    return table


def show(*parts: object, file: TextIO | None = None) -> None:
    """Prints tables and texts, one below the other, without spaces at the ends of lines."""
    out = console(file)
    if out.is_terminal:
        for part in parts:
            out.print(part, soft_wrap=isinstance(part, str))
    else:
        out.file.write("".join(f"{rendered(part)}\n" for part in parts))
    out.file.flush()


def rendered(part: object) -> str:
    """A table or text as plain text, without spaces at the ends of lines."""
    text = io.StringIO()
    console(text).print(part)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


class _Bar(Progress):
    """A bar on a terminal, which disappears in the end."""

    def __init__(self, what: str, total: float, bar: Bar) -> None:
        super().__init__(what, total)
        self._bar, self._task = bar, bar.add_task(what, total=total, visible=False)

    def _show(self, now: float) -> None:
        visible = now - self.begin >= FIRST_SHOWN_S
        self._bar.update(self._task, completed=self.done, description=self.what, visible=visible)


@contextlib.contextmanager
def progress(what: str, total: float) -> Iterator[Progress]:
    """Progress of work that is complete at `total`: a bar on terminals, lines elsewhere.

    Work of less than two seconds shows nothing.
    """
    if not sys.stderr.isatty():
        yield Progress(what, total)
        return
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn())
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    with Bar(*columns, *times, console=console(sys.stderr), transient=True) as bar:
        yield _Bar(what, total, bar)
