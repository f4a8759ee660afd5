"""Targets as ratios of times within one run, and verdicts on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from weft_lab.bench.rows import BenchRow

K, M = 1 << 10, 1 << 20


@dataclass(frozen=True)
class TargetVerdict:
    """One target at one size. `measured` and `target` are ratios of times: `of` over `what`."""

    table: str
    bytes: int
    what: str
    measured_us: float
    of: str
    of_us: float
    measured: float
    target: float
    at_most: bool
    met: bool


@dataclass(frozen=True)
class Band:
    """A target for a range of sizes, both ends included."""

    first: int
    last: int
    target: float


def target(bands: Sequence[Band], size: int) -> float | None:
    """Returns the target at a size; None if there is none."""
    return next((band.target for band in bands if band.first <= size <= band.last), None)


def against_peers(table: str, rows: Sequence[BenchRow], memory: str, bands: Sequence[Band]) -> Iterator[TargetVerdict]:
    """How many times as long the best peer takes at each size.

    The best is the one that weft is least ahead of.
    """
    for size in sorted({row.bytes for row in rows}):
        ours = [row for row in rows if row.bytes == size and row.kind == "weft" and row.memory == memory]
        peers = [row for row in rows if row.bytes == size and row.kind == "peer"]
        wanted = target(bands, size)
        if not ours or not peers or wanted is None:
            continue
        best = min(peers, key=ours[0].times)
        yield at_least(table, ours[0], best, ours[0].times(best), wanted)


def at_least(table: str, ours: BenchRow, theirs: BenchRow, ratio: float, wanted: float) -> TargetVerdict:
    """The verdict on whether a peer takes at least `wanted` times as long as weft."""
    times = ours.median_us, theirs.median_us
    return TargetVerdict(
        table, ours.bytes, ours.name, times[0], theirs.name, times[1], ratio, wanted, at_most=False, met=ratio >= wanted
    )
