"""Table of the compression benchmark, with a verdict on each row."""

from __future__ import annotations

from collections.abc import Sequence

from benches.compression.rows import CompressionRow
from benches.compression.settings import HOSTS

__all__ = ["table", "verdict"]

_NOTICEABLE = 0.05
"""Runs of one seed differ by about as much."""
_COLUMNS = ("Gbit/s", "averages", "ms a step", "steps", "seconds", "loss", "verdict")


def table(rows: Sequence[CompressionRow], loss: float) -> str:
    """A line for each way of averaging and rate."""
    cells = [_COLUMNS, *(_cells(row, rows) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_COLUMNS))]
    lines = [
        "  ".join(
            cell.ljust(width) if _COLUMNS[column] in ("averages", "verdict") else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]
    explanation = (
        f"A language model on {HOSTS} emulated hosts, to a loss of {loss:g} nats on test text; one seed. Steps and "
        "seconds to that loss; a verdict is by seconds, against exact averages with the same kind of optimizer."
    )
    return "\n".join([*lines, explanation])


def verdict(row: CompressionRow, rows: Sequence[CompressionRow]) -> str:
    """Whether a way of averaging was worth it at this rate."""
    if row.contender == row.reference:
        return "-"
    exact = next(other for other in rows if (other.gbps, other.contender) == (row.gbps, row.reference))
    if row.seconds is None:
        return "does not get there" if exact.seconds is not None else "nor does exact"
    if exact.seconds is None:
        return "gets there, exact does not"
    change = row.seconds / exact.seconds - 1
    if abs(change) < _NOTICEABLE:
        return "no difference"
    return f"{'faster' if change < 0 else 'slower'}: {change:+.0%} time"


def _cells(row: CompressionRow, rows: Sequence[CompressionRow]) -> tuple[str, ...]:
    steps = "-" if row.steps is None else str(row.steps)
    seconds = "-" if row.seconds is None else f"{row.seconds:.1f}"
    measured = (f"{row.step_ms:.1f}", steps, seconds, f"{row.loss:.2f}")
    return (f"{row.gbps:g}", row.contender, *measured, verdict(row, rows))
