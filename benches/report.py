"""Tables and JSON of the verdicts."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from benches.targets import TargetVerdict
from weft.quantities import show_bytes
from weft_lab.bench.rows import BenchRow


def table(verdicts: Sequence[TargetVerdict]) -> str:
    """Returns the whole report as text."""
    lines = []
    for name in dict.fromkeys(verdict.table for verdict in verdicts):
        here = [verdict for verdict in verdicts if verdict.table == name]
        met = sum(verdict.met for verdict in here)
        lines += ["", f"{name}: {met} of {len(here)} met"]
        lines.append(f"{'bytes':>7} {'measured us':>24} {'compared with us':>30} {'ratio':>8} {'target':>8}")
        lines += [_line(verdict) for verdict in here]
    met = sum(verdict.met for verdict in verdicts)
    return "\n".join([*lines, "", f"all: {met} of {len(verdicts)} targets met"])


def write(path: Path, verdicts: Sequence[TargetVerdict], rows: Sequence[BenchRow]) -> None:
    """Verdicts and rows as JSON."""
    listed = ",\n".join(json.dumps(dataclasses.asdict(verdict)) for verdict in verdicts)
    measured = ",\n".join(json.dumps(dataclasses.asdict(row)) for row in rows)
    path.write_text(f'{{"verdicts": [\n{listed}\n],\n"rows": [\n{measured}\n]}}\n')


def _line(verdict: TargetVerdict) -> str:
    ours = f"{verdict.what} {_microseconds(verdict.measured_us)}"
    theirs = f"{verdict.of} {_microseconds(verdict.of_us)}"
    sign = "<=" if verdict.at_most else ">="
    word = "met" if verdict.met else "MISSED"
    return (
        f"{show_bytes(verdict.bytes):>7} {ours:>24} {theirs:>30} {verdict.measured:>8.2f} "
        f"{sign + f' {verdict.target:g}':>8}  {word}"
    )


def _microseconds(time_us: float) -> str:
    return f"{time_us:.3f}" if time_us < 10 else f"{time_us:.1f}"
