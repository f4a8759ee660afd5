"""Measures the pipeline on emulated devices, and reports missed targets."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benches.device import claims
from benches.device.ranks import run
from weft.device.model import CopyEngines, pipeline_seconds
from weft_lab.bench import neighbours

_BOUND_MAX = 1.05
"""Times of the model's bound that are allowed."""
_COPY_LIMIT_MIN = 0.9
"""Of the rate of one copy engine, from 16 MiB on."""
_OVERLAP_MIN = 1.6
"""Copy engines that are busy at a time, on average, at the largest size."""


def main() -> int:
    """Runs all numbers of ranks, prints the table, and writes it."""
    parser = argparse.ArgumentParser(prog="python -m benches.device", description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1 << 20, 16 << 20, 64 << 20], help="bytes")
    parser.add_argument(
        "--rate", type=float, default=400e6, help="of all ranks' copies in one direction together, in bytes a second"
    )
    parser.add_argument("--tile", type=int, default=512 << 10, help="bytes")
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument(
        "--ways",
        nargs="+",
        default=[claims.BUILT_IN],
        help="how the hosts reduce: built-in, claimed-K (slices in K chunks that other ranks may take over), plain-K",
    )
    parser.add_argument("--busy", type=int, default=0, help="other processes that compute all the time")
    parser.add_argument("--quick", action="store_true", help="2 ranks, few repeats: a look")
    parser.add_argument("--output", type=Path, help="directory for device.json")
    asked = parser.parse_args()
    if asked.quick:
        asked.ranks, asked.repeats = [2], 5
    with neighbours.started(asked.busy) as beside, beside.running():
        rows = [row for ranks in asked.ranks for row in _measured(asked, ranks)]
    print(
        f"{'ranks':>5} {'MiB':>6} {'way':10} {'host ms':>9} {'ms':>9} {'bound':>9} {'times':>6} {'of rate':>8} "
        f"{'engines':>8} {'cores':>6}"
    )
    for row in rows:
        print(
            f"{row['ranks']:5} {row['bytes'] / 2**20:6g} {row['way']:10} {row['host_seconds'] * 1e3:9.3f} "
            f"{row['seconds'] * 1e3:9.3f} {row['bound'] * 1e3:9.3f} "
            f"{row['times']:6.3f} {row['of_rate']:8.1%} {row['engines_busy']:8.2f} {row['cores']:6.2f}"
        )
    missed = [text for row in rows for text in _missed(row, max(asked.sizes))]
    print("\n".join(missed) or "all targets met")
    if asked.output:
        asked.output.mkdir(parents=True, exist_ok=True)
        (asked.output / "device.json").write_text(json.dumps({"rows": rows, "missed": missed}, indent=1))
    return 1 if missed else 0


def _measured(asked: argparse.Namespace, ranks: int) -> list[dict[str, Any]]:
    """Returns the rows of this many ranks, with the model's predictions."""
    rate = asked.rate / ranks  # the cores of this machine do what engines do, for all ranks
    wanted = {**{name: getattr(asked, name) for name in ("sizes", "tile", "repeats", "ways")}, "rate": rate}
    found = run("benches.device.measured", wanted, ranks)
    for row in found["rows"]:
        # The time without copies gives the hosts' rate; it is a stage of the pipeline.
        engines = CopyEngines(rate, rate, found["latency"], row["bytes"] / row["host_seconds"])
        row["bound"] = pipeline_seconds(row["bytes"], asked.tile, found["slots"], engines)
        row["times"] = row["seconds"] / row["bound"]
        row["of_rate"] = row["bytes"] / row["seconds"] / rate
    return list(found["rows"])


def _missed(row: dict[str, Any], largest: int) -> list[str]:
    """The targets that a row misses, in words."""
    where = f"{row['ranks']} ranks, {row['bytes'] >> 20} MiB"
    missed = []
    if row["bytes"] >= 16 << 20 and row["times"] > _BOUND_MAX:
        missed.append(f"MISSED {where}: {row['times']:.3f} times the bound, at most {_BOUND_MAX} wanted")
    if row["bytes"] >= 16 << 20 and row["of_rate"] < _COPY_LIMIT_MIN:
        missed.append(f"MISSED {where}: {row['of_rate']:.1%} of the copy limit, {_COPY_LIMIT_MIN:.0%} wanted")
    if row["bytes"] == largest and row["engines_busy"] < _OVERLAP_MIN:
        missed.append(f"MISSED {where}: {row['engines_busy']:.2f} copy engines busy, {_OVERLAP_MIN} wanted")
    return missed


if __name__ == "__main__":
    sys.exit(main())
