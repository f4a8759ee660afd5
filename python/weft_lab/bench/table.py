"""Rows as a table for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from weft.quantities import show_bytes
from weft_lab import console
from weft_lab.bench.rows import BenchRow
from weft_lab.bench.spec import GLOO, RING, Spec

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["row_table", "title"]

_NAME_WIDTH = 16
_COLUMNS = (
    ("min us", 11),
    ("median us", 11),
    ("spread", 6),
    ("p95 us", 11),
    ("alg GB/s", 9),
    ("bus GB/s", 9),
    ("#wrong", 6),
)
_COSTS = (("cpu ms", 8), ("busy ms", 8))


def title(spec: Spec) -> str:
    """A title for the measurement."""
    rate = "" if spec.gbps is None else f" at {spec.gbps:g} Gbit/s"
    delay = "" if spec.delay_ms is None else f" with a delay of {spec.delay_ms:g} ms"
    hosts = f"{spec.hosts} emulated hosts{rate}{delay}" if spec.hosts > 1 else "one host"
    through = " through torch" if spec.through == "torch" else ""
    beside = f", {spec.neighbours} busy beside them" if spec.neighbours else ""
    return (
        f"{spec.collective}{through}, {spec.dtype}, {spec.ranks} ranks on {hosts}{beside}, transport {spec.transport}"
    )


def row_table(spec: Spec, same_size: Sequence[BenchRow] = ()) -> Table:
    """The rows of one size; without rows, the names of the columns, which are above all sizes."""
    width = max(_NAME_WIDTH, *(len(name) for name in _names(spec)))
    floor = (("of floor" if spec.hosts == 1 else "of bound", 8),) if spec.floors else ()
    numbers = [(f">{name}", {"min_width": width}) for name, width in (*_COLUMNS, *floor, *_COSTS)]
    table = console.new_table(
        (">bytes", {"min_width": 9}),
        ("library", {"min_width": width}),
        *numbers,
        "peers' time / weft's",
        header=not same_size,
    )
    for row in same_size:
        table.add_row(*_cells(row, same_size, floors=spec.floors), style=None if row.verified else "bold red")
    return table


def _names(spec: Spec) -> Iterator[str]:
    """The names of the contenders."""
    place = " out-of-place" if "out" in spec.places else ""
    yield from (name if name in (GLOO, RING) else f"{name}{place}" for name in spec.peers)
    yield from (f"weft-{other}" for other in (*spec.ciphers, *spec.registrations))
    for memory in spec.memories:
        for wire in ("full", *spec.wires):
            yield f"weft {memory}{'' if wire == 'full' else f' {wire}'}{place}"


def _cells(row: BenchRow, same_size: Sequence[BenchRow], *, floors: bool) -> list[str]:
    peers = row.peers(same_size) if row.kind == "weft" else []
    ratios = "  ".join(f"{peer.library} {row.times(peer):.2f}x" for peer in peers)
    digits = 3 if row.median_us < 10 else 1
    wrong = ("0" if row.verified else "some") if row.wrong is None else str(row.wrong)
    floor = ["" if row.of_floor is None else f"{row.of_floor:.3f}"] if floors else []
    return [
        show_bytes(row.bytes),
        row.name,
        f"{row.min_us:.{digits}f}",
        f"{row.median_us:.{digits}f}",
        f"{row.spread:.0%}",
        f"{row.p95_us:.{digits}f}",
        f"{row.algbw_gbs:.3f}",
        f"{row.busbw_gbs:.3f}",
        "" if row.kind == "floor" else wrong,
        *floor,
        _milliseconds(row.processor_ms),
        _milliseconds(row.busy_ms),
        ratios if row.verified else f"{ratios}  WRONG RESULT",
    ]


def _milliseconds(time_ms: float | None) -> str:
    if time_ms is None:
        return ""
    return f"{time_ms:.3g}" if time_ms < 1000 else f"{time_ms:.0f}"
