"""Readings of recorded runs (benches/runs) for pages and pictures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

__all__ = [
    "DIVIDED",
    "GATE",
    "HOSTS",
    "ONE_HOST",
    "WIRE",
    "Exchange",
    "exchanges",
    "gate",
    "link",
    "paired",
    "step_ms",
    "study",
]

GATE = "2026-11-29-gate"
WIRE = "2026-11-25-overlap-wire"
DIVIDED = "2026-11-29-one-host-updates"
ONE_HOST = "2026-11-22-one-host"
HOSTS = "2026-11-30-hosts"
"""The runs that tables of figures are made of: directories of benches/runs."""

RUNS = Path(__file__).resolve().parents[2] / "benches" / "runs"

Exchange = Sequence[Mapping[str, Any]]
"""Rows of contenders that took turns with messages of one size."""


def link(run: str, root: str, text: str = "") -> str:
    """A link to a run from a page; `root` leads from the page's folder to the repository's."""
    return f"[{text or run}]({root}benches/runs/{run}/README.md)"


def gate(way: str = "DDP") -> list[dict[str, Any]]:
    """Training steps over weft and over Gloo, in a way of `benches.gate.settings`."""
    rows: list[dict[str, Any]] = json.loads((RUNS / GATE / "rows.json").read_text(encoding="utf-8"))
    return [row for row in rows if row["way"] == way]


def study(run: str) -> Iterator[dict[str, Any]]:
    """Yields the records of a run of `weft experiment overlap`: one for each model and network."""
    for path in sorted((RUNS / run).glob("*.json")):
        yield json.loads(path.read_text(encoding="utf-8"))


def paired(rounds: Iterable[Mapping[str, Any]], contender: str, baseline: str) -> list[float]:
    """The ratio of two contenders' steps in each round."""
    return [float(measured[contender]["step_ms"] / measured[baseline]["step_ms"]) for measured in rounds]


def step_ms(rounds: Iterable[Mapping[str, Any]], contender: str) -> float:
    """The median of a contender's steps over the rounds."""
    return median(float(measured[contender]["step_ms"]) for measured in rounds)


def exchanges(run: str, *, through_torch: bool, **shape: Any) -> Iterator[Exchange]:
    """A run's all-reduces by size, of the groups that have this shape (`ranks=4, gbps=1.0`).

    Rows do not say what they went through. Through torch the only peer is Gloo, and nothing below
    torch is measured beside it.
    """
    rows: list[dict[str, Any]] = json.loads((RUNS / run / "rows.json").read_text(encoding="utf-8"))
    seen: set[int] = set()
    for _, members in groupby(rows, key=lambda row: (row["bytes"], row["ranks"], row["hosts"], row["gbps"])):
        turn = list(members)
        beside = {row["library"] for row in turn if row["kind"] != "weft"}
        first = turn[0]
        fits = all(first.get(name) == value for name, value in shape.items())
        if fits and (beside == {"gloo"}) == through_torch and first["bytes"] not in seen:
            seen.add(first["bytes"])
            yield turn
