"""The tables of a comparison of builds."""

from __future__ import annotations

from collections.abc import Sequence

from benches.builds import instructions, verdict
from benches.builds.instructions import InstructionCount
from benches.builds.verdict import CellVerdict, GroupVerdict
from weft.quantities import show_bytes

_COLUMNS = ("ranks, transport, level, memory", "new/old", "again", "old/old", "worst", "new/old", "bound", "")


def table(cells: Sequence[CellVerdict]) -> str:
    """A line per group.

    Geometric means, and the cell closest to its bound or beyond it; then the verdicts.
    """
    groups = verdict.groups(cells)
    lines = [_COLUMNS, *(_cells(group) for group in groups)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_COLUMNS))]
    texts = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    met = sum(group.is_met for group in groups)
    texts.append(f"{met} of {len(groups)} groups have a geometric mean of at most {verdict.GROUP_MAX}")
    beyond = [cell for cell in cells if cell.is_beyond]
    once = sum(cell.new > cell.bound for cell in cells)
    texts.append(f"{len(beyond)} of {len(cells)} cells are beyond the 99 % bound of old over old ({once} at first)")
    texts += [f"  {one.cell.name}: {one.new:.3f}, again {_ratio(one.again)}, bound {one.bound:.3f}" for one in beyond]
    return "\n".join(texts)


def instructions_table(counts: Sequence[InstructionCount]) -> str:
    """A line per way of calling."""
    lines = ["processor instructions of a 4-byte all-reduce, 2 ranks, stepped through:"]
    for count in counts:
        met = "met" if count.growth <= instructions.GROWTH_MAX else "MISSED"
        name = f"{count.group.level}, {count.group.memory}"
        lines.append(f"  {name:<18}  old {count.old:6}  new {count.new:6}  new/old {count.growth:.3f}  {met}")
    return "\n".join(lines)


def _cells(group: GroupVerdict) -> tuple[str, ...]:
    worst = group.worst
    return (
        group.group.name,
        f"{group.new:.3f}",
        _ratio(group.again),
        f"{group.control:.3f}",
        show_bytes(worst.cell.bytes),
        f"{worst.new:.3f}",
        f"{worst.bound:.3f}",
        ("met" if group.is_met else "MISSED") + (", cell BEYOND" if worst.is_beyond else ""),
    )


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
