"""The section of the page for rows of `weft bench`."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.drawing.markup import Markup, element, printable
from weft.quantities import show_bytes
from weft_lab.bench import plot
from weft_lab.bench.rows import BenchRow
from weft_lab.web_report.markup import picture, table

__all__ = ["section"]

_COLUMNS = (
    "bytes", "<library", "ranks", "min µs", "median µs", "spread", "p95 µs", "alg GB/s", "bus GB/s", "wrong",
    "cpu ms", "<version",
)  # fmt: skip


def section(name: str, rows: Sequence[BenchRow]) -> tuple[str, list[Markup]]:
    """A title, and the content below it."""
    parts: list[Markup] = []
    for collective in dict.fromkeys(row.collective for row in rows):
        of_it = [row for row in rows if row.collective == collective]
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "rows.svg")
            plot.draw(path, [_printable(row) for row in of_it])
            drawing = path.read_text(encoding="utf-8")
        # A document type names a file on the network that viewers may ask for.
        drawing = drawing[drawing.index("<svg") :]
        parts += [element("h3", {}, collective), picture(drawing, f"time and bus bandwidth of {collective} by size")]
    cells = [_cells(row) for row in rows]
    kinds = ["wrong" if not row.verified else "floor" if row.kind == "floor" else "" for row in rows]
    summary = element("summary", {}, f"all {len(rows)} rows")
    parts.append(element("details", {}, summary, table(_COLUMNS, cells, kinds)))
    return f"Benchmark: {name}", parts


def _printable(row: BenchRow) -> BenchRow:
    """The row with texts that matplotlib can draw."""
    texts: dict[str, Any] = {name: printable(value) for name, value in vars(row).items() if isinstance(value, str)}
    return dataclasses.replace(row, **texts)


def _cells(row: BenchRow) -> list[str]:
    wrong = ("0" if row.verified else "some") if row.wrong is None else str(row.wrong)
    return [
        show_bytes(row.bytes),
        row.name,
        str(row.ranks),
        f"{row.min_us:.4g}",
        f"{row.median_us:.4g}",
        f"{row.spread:.0%}",
        f"{row.p95_us:.4g}",
        f"{row.algbw_gbs:.3f}",
        f"{row.busbw_gbs:.3f}",
        "" if row.kind == "floor" else wrong,
        "" if row.processor_ms is None else f"{row.processor_ms:.3g}",
        row.version,
    ]
