"""What a benchmark yields: one row for every size and contender, the same shape in every benchmark."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np


@dataclasses.dataclass(frozen=True)
class Row:
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
    p95_us: float
    algbw_gbs: float
    """Message bytes per second of the median call."""
    busbw_gbs: float
    """What a link has to carry for that, whatever the number of ranks: algorithm bandwidth times a factor."""
    verified: bool


def summary(samples_s: np.ndarray) -> dict[str, float]:
    """The statistics of a row, from the slowest rank's times."""
    low, median, high = np.quantile(samples_s, [0.0, 0.5, 0.95]) * 1e6
    return {"min_us": round(low, 3), "median_us": round(median, 3), "p95_us": round(high, 3)}


def write(path: Path, rows: Sequence[Row]) -> None:
    """Writes rows as a JSON list, one row a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(dataclasses.asdict(row)) for row in rows)
    path.write_text(f"[\n{lines}\n]\n")


def append(path: Path, row: Row) -> None:
    """Adds a row to a file of rows that is read while it grows."""
    with path.open("a") as file:
        file.write(json.dumps(dataclasses.asdict(row)) + "\n")


def read_growing(path: Path) -> list[Row]:
    """The complete rows of such a file."""
    if not path.exists():
        return []
    text = path.read_text()
    return [Row(**json.loads(line)) for line in text[: text.rfind("\n") + 1].splitlines()]
