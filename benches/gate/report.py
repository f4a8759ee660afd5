"""The table of the gate."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benches.gate.rows import GateRow

_COLUMNS = (
    "ranks", "network", "way", "compute", "weft", "Gloo", "ratio", "95 %", "cpu compute", "cpu weft", "cpu Gloo",
    "blocks",
)  # fmt: skip


def table(rows: Sequence[GateRow], left_out: Sequence[str]) -> str:
    """One line per network, way and setting, and the geometric mean of the ratios of each way.

    Then the omissions, with reasons.
    """
    cells = [_COLUMNS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_COLUMNS))]
    lines = [_line(_COLUMNS, widths)]
    setting = ""
    for row, line in zip(rows, cells[1:], strict=True):
        if row.setting != setting:
            setting = row.setting
            lines.append(f"-- {setting}")
        lines.append(_line(line, widths) + ("" if row.agrees else "  GRADIENTS DIFFER"))
    for way in dict.fromkeys(row.way for row in rows):
        mean = statistics.geometric_mean([row.ratio for row in rows if row.way == way])
        lines.append(f"geometric mean of weft / Gloo, {way}: {mean:.3f}")
    lines.append(
        "Milliseconds of a step, by the slowest rank; then of a rank's processor time, all its threads together."
    )
    return "\n".join([*lines, *(f"left out: {reason}" for reason in left_out)])


def _cells(row: GateRow) -> tuple[str, ...]:
    low, high = row.interval
    step = [_milliseconds(row.step_ms(name)) for name in ("compute", "weft", "gloo")]
    processor = [_milliseconds(row.processor_ms(name)) for name in ("compute", "weft", "gloo")]
    ratio = (f"{row.ratio:.3f}", f"{low:.3f}-{high:.3f}")
    return (str(row.ranks), row.network, row.way, *step, *ratio, *processor, f"{len(row.rounds)} x {row.steps}")


def _milliseconds(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.2f}"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    texts = [
        cell.ljust(width) if column in ("network", "way") else cell.rjust(width)
        for cell, width, column in zip(cells, widths, _COLUMNS, strict=True)
    ]
    return "  ".join(texts).rstrip()
