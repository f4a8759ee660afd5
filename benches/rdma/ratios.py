"""Times of contenders as multiples of RDMA's, block by block."""

from __future__ import annotations

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from weft.quantities import show_bytes
from weft_lab.bench.pipeline import confidence
from weft_lab.bench.rows import BenchRow

__all__ = ["RatioTable"]

_RDMA = "weft over rdma"


class RatioTable:
    """The results of the blocks."""

    def __init__(self) -> None:
        self._rows: list[BenchRow] = []
        self._us: defaultdict[tuple[int, str], list[float]] = defaultdict(list)

    def add(self, rows: Sequence[BenchRow]) -> None:
        """A block's rows, of some of the contenders."""
        for row in rows:
            self._rows.append(row)
            self._us[row.bytes, _name(row)].append(row.median_us)

    @property
    def verified(self) -> bool:
        """Whether all results were right."""
        return all(row.verified for row in self._rows)

    def ratios(self, size: int, name: str) -> list[float]:
        """A contender's time by RDMA's, by block."""
        return [other / own for own, other in zip(self._us[size, _RDMA], self._us[size, name], strict=True)]

    def text(self) -> str:
        """A table: medians with the interval that holds them with a probability of 95 %."""
        lines = ["| bytes | contender | median us | by RDMA's | 95 % |", "|---|---|---|---|---|"]
        for size, name in sorted(self._us, key=lambda cell: (cell[0], cell[1] != _RDMA, cell[1])):
            ratios = self.ratios(size, name)
            low, high = confidence(ratios)
            median_us = statistics.median(self._us[size, name])
            numbers = f"{median_us:.0f} | {statistics.median(ratios):.2f} | {low:.2f} to {high:.2f}"
            lines.append(f"| {show_bytes(size)} | {name} | {numbers} |")
        return "\n".join(lines)

    def to_value(self) -> list[dict[str, Any]]:
        """For JSON: all rows, in the order of their measurement."""
        return [dataclasses.asdict(row) for row in self._rows]


def _name(row: BenchRow) -> str:
    return f"weft over {row.transport}" if row.kind == "weft" else row.library
