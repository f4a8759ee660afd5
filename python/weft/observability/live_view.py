"""The status of a job as text: the verdict, then a line for each rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from weft.observability.live_status import RankRates
from weft.output.plain_text import Table
from weft.quantities import about_bytes

__all__ = ["COLUMNS", "View", "rank_lines", "text"]

COLUMNS = ("rank", "host", ">step/s", ">op/s", ">waits", ">cores", ">sent/s", ">recv/s", ">resent", ">pool", "does")
_RANKS_MAX = 32

View = Callable[[str, Mapping[str, Any], Mapping[int, RankRates], int], None]
"""Shows a look at a job: its name, the report, the rates, and how many ranks to show."""


def text(report: Mapping[str, Any], rates: Mapping[int, RankRates], *, ranks_max: int = _RANKS_MAX) -> str:
    """The verdict, and a table of the ranks: those that are to blame first.

    Args:
        report: As `weft.observability.live_status.ask` returns it.
        rates: By global rank; ranks without rates have dashes.
        ranks_max: More ranks are counted.
    """
    lines = rank_lines(report, rates)
    table = Table(*COLUMNS)
    for line in lines[:ranks_max]:
        table.add_row(*line)
    left = len(lines) - ranks_max
    more = [f"{left} more ranks: see --ranks"] if left > 0 else []
    return "\n".join([f"{report['group']}, {report['size']} ranks", report["verdict"]["text"], "", table.text(), *more])


def rank_lines(report: Mapping[str, Any], rates: Mapping[int, RankRates]) -> list[tuple[str, ...]]:
    """The cells of each rank, those that are to blame first."""
    culprits = set(report["verdict"]["culprits"])
    lines = {status["global_rank"]: _line(status, rates.get(status["global_rank"])) for status in report["ranks"]}
    unknown = ("-",) * (len(COLUMNS) - 3)
    for silent in report["silent"]:
        lines[silent["global_rank"]] = (str(silent["global_rank"]), silent["host"], *unknown, "does not answer")
    return [lines[rank] for rank in sorted(lines, key=lambda rank: (rank not in culprits, rank))]


def _line(status: Mapping[str, Any], rates: RankRates | None) -> tuple[str, ...]:
    if rates is None:
        numbers = ["-"] * 7
    else:
        numbers = [
            f"{rates.steps:.1f}" if status["steps"] else "-",
            f"{rates.operations:.0f}",
            f"{rates.waiting:.0%}",
            f"{rates.cores:.2f}",
            about_bytes(round(rates.sent_bytes)),
            about_bytes(round(rates.received_bytes)),
            f"{rates.retransmissions:.0f}",
        ]
    used, bound = status["pool_bytes"]
    pool = f"{about_bytes(used)} of {about_bytes(bound)}"
    return (str(status["global_rank"]), status["host"], *numbers, pool, _doing(status))


def _doing(status: Mapping[str, Any]) -> str:
    current = status["current"]
    if current is None:
        return f"in the program for {status['quiet_us'] / 1e6:.1f} s"
    text = f"{current['text']} for {current['age_us'] / 1e6:.1f} s"
    awaited = current["waits_for"]
    if awaited is None:
        return text
    how = "sending to" if awaited["sends"] else "waits for"
    return f"{text}, {how} rank {awaited['global_rank']}"
