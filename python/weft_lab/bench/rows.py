"""Benchmark results: one row per size and contender, in the same format for every benchmark."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from weft.output import files
from weft_lab.bench.collectives import find

KINDS = ("weft", "peer", "floor")


@dataclasses.dataclass(frozen=True)
class BenchRow:
    """One contender at one size. Every sample is the slowest rank's time of one call."""

    collective: str
    transport: str
    memory: str
    dtype: str
    ranks: int
    hosts: int
    gbps: float | None
    bytes: int
    library: str
    version: str
    samples: int
    min_us: float
    median_us: float
    """The median of the rounds' medians."""
    p95_us: float
    algbw_gbs: float
    """Message bytes per second of the median call."""
    busbw_gbs: float
    """The rate of a link for that, for any number of ranks: algorithm bandwidth times a factor."""
    verified: bool
    kind: str = "peer"
    """One of `KINDS`; a floor is a lower bound for all libraries."""
    rounds_us: list[float] = dataclasses.field(default_factory=list)
    """The median of every round."""
    floor: str | None = None
    """The floor that this row is compared with."""
    floor_us: float | None = None
    of_floor: float | None = None
    """The floor's time as a fraction of this row's: 1 is the fastest possible."""
    neighbours: int = 0
    """Busy processes during the measurement."""
    processor_ms: float | None = None
    """User and system time of all threads of all ranks' processes, milliseconds per call, of calls
    made one after the other.
    """
    busy_ms: float | None = None
    """Time that the machine's cores were busy meanwhile with any process, milliseconds per call;
    None with busy neighbours.
    """
    window_s: float | None = None
    """How long processor time was measured, all rounds together."""
    delay_ms: float | None = None
    """The delay between emulated hosts."""
    wire: str = "full"
    """The wire format."""
    wrong: int | None = None
    """The wrong elements of all ranks' results together; None in rows of old files."""
    out_of_place: bool = False
    """Whether the result had separate memory, if it could replace the input."""

    @property
    def name(self) -> str:
        """The contender's name in tables and pictures."""
        place = " out-of-place" if self.out_of_place else ""
        if self.kind == "peer":
            return f"{self.library}{place}"
        wire = "" if self.wire == "full" else f" {self.wire}"
        return f"{self.library} {self.memory}{wire}{place}"

    @property
    def spread(self) -> float:
        """The greatest distance of a round from the median, as a fraction of the median."""
        if not self.median_us:
            return 0.0
        return max((abs(median / self.median_us - 1) for median in self.rounds_us), default=0.0)

    def peers(self, same_size: Sequence[BenchRow]) -> list[BenchRow]:
        """The peers' rows that this one is compared with, of those of its size.

        They have their results in the same place; a library that was measured in another place only
        has that row.
        """
        rows = [row for row in same_size if row.kind == "peer"]
        both = {row.library for row in rows if row.out_of_place == self.out_of_place}
        return [row for row in rows if row.out_of_place == self.out_of_place or row.library not in both]

    def times(self, other: BenchRow) -> float:
        """How many times as long the other contender takes: the median over the rounds of both.

        All contenders take turns in a round, so that its ratio is of neighbours in time. On a
        machine whose speed changes between rounds, two medians may be of different speeds.
        """
        if not self.rounds_us or len(self.rounds_us) != len(other.rounds_us):
            return other.median_us / self.median_us
        return float(np.median([theirs / ours for ours, theirs in zip(self.rounds_us, other.rounds_us, strict=True)]))

    def above(self, floor: str, floor_us: float) -> BenchRow:
        """The row, compared with a floor."""
        fraction = round(floor_us / self.median_us, 4) if self.median_us else None
        return dataclasses.replace(self, floor=floor, floor_us=round(floor_us, 3), of_floor=fraction)

    def above_bound(self, stream: BenchRow) -> BenchRow:
        """The row of an all-reduce, compared with the time of the line for its bytes.

        That is `2 (H - 1) / H * N / B + D` on H hosts, with B the rate of one stream in the same
        run, D the delay, and N the message's bytes, in any wire format.
        """
        moved = find(self.collective).bus_factor(self.hosts) * self.bytes
        streams = moved / (stream.algbw_gbs * 1e3) / stream.median_us
        delay_us = 1e3 * (self.delay_ms or 0.0)
        return dataclasses.replace(
            self,
            floor="bound",
            floor_us=round(streams * stream.median_us + delay_us, 3),
            of_floor=round(streams * self.times(stream) + delay_us / self.median_us, 4),
        )


@dataclasses.dataclass(frozen=True)
class Summary:
    """The statistics of a row."""

    min_us: float
    median_us: float
    p95_us: float
    rounds_us: list[float]


def summary(rounds_s: Sequence[np.ndarray]) -> Summary:
    """The statistics of every round's samples."""
    medians = [float(np.median(samples)) * 1e6 for samples in rounds_s]
    low, high = np.quantile(np.concatenate(rounds_s), [0.0, 0.95]) * 1e6
    return Summary(
        min_us=round(float(low), 3),
        median_us=round(float(np.median(medians)), 3),
        p95_us=round(float(high), 3),
        rounds_us=[round(median, 3) for median in medians],
    )


def write(path: Path, rows: Sequence[BenchRow]) -> None:
    """Writes rows as a JSON list, one row a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(dataclasses.asdict(row)) for row in rows)
    files.write(path, f"[\n{lines}\n]\n")


def csv_lines(rows: Sequence[BenchRow], *, header: bool) -> str:
    """Rows as comma-separated values, with the names of the columns above them if requested."""
    text = io.StringIO()
    names = [field.name for field in dataclasses.fields(BenchRow) if field.name != "rounds_us"]
    writer = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(dataclasses.asdict(row) for row in rows)
    return text.getvalue()


def read(path: Path) -> list[BenchRow]:
    """The rows of such a file."""
    return [BenchRow(**row) for row in json.loads(path.read_text())]
