"""The terminal view of `weft top` by rich: redrawn in place, with culprits and waits in colour.

An entry point of the group `weft.views`, where `weft top` finds it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from weft.observability.live_status import RankRates
from weft.observability.live_view import COLUMNS, View, rank_lines
from weft_lab.console import console, new_table

if TYPE_CHECKING:
    from rich.console import Group

__all__ = ["page", "screen"]

_BAR = 8
_WAITS = COLUMNS.index(">waits")


@contextlib.contextmanager
def screen() -> Iterator[View]:
    """A function that shows a look, until the end of the context; the last look stays."""
    from rich.live import Live

    with Live(console=console(), auto_refresh=False, vertical_overflow="crop") as live:

        def show(name: str, report: Mapping[str, Any], rates: Mapping[int, RankRates], ranks_max: int) -> None:
            live.update(page(name, report, rates, ranks_max), refresh=True)

        yield show


def page(name: str, report: Mapping[str, Any], rates: Mapping[int, RankRates], ranks_max: int) -> Group:
    """A look: the verdict in a frame, and a table of the ranks."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    verdict = report["verdict"]
    colour = "red" if verdict["culprits"] else "yellow" if verdict["waiting"] else "green"
    title = f"{name}: {report['group']}, {report['size']} ranks"
    table = new_table(*COLUMNS[:-1], (COLUMNS[-1], {"no_wrap": False}))
    lines = rank_lines(report, rates)
    for line in lines[:ranks_max]:
        rank = int(line[0])
        cells = [Text(cell) for cell in line]
        if rank in rates:
            cells[_WAITS] = _bar(rates[rank].waiting)
        table.add_row(*cells, style="bold red" if rank in verdict["culprits"] else "")
    left = len(lines) - ranks_max
    more = [Text(f"{left} more ranks: see --ranks", "dim")] if left > 0 else []
    return Group(Panel(Text(verdict["text"]), title=Text(title), border_style=colour), table, *more)


def _bar(share: float) -> Any:
    from rich.text import Text

    full = round(share * _BAR)
    return Text.assemble(("█" * full, "yellow"), ("░" * (_BAR - full), "dim"), f" {share:>4.0%}")
