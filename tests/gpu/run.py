"""Runs the tests that need a GPU, with nothing but python3, torch and weft's wheel there."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.gpu.package import ROOT, environment, started

CASES = (
    "types_and_operations",
    "collectives",
    "arrays",
    "registered_arrays",
    "stream_order",
    "dropped_tensors",
    "caller_does_not_wait",
    "refusals",
    "training",
    "death",
)
"""The functions of `cases.py`, which only ranks can import: it needs the wheel."""
_DEADLINE_S = 240.0
_SANITIZED = ("collectives", 2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--case", choices=sorted(CASES), nargs="+", default=CASES)
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "gpu" / "tests.json")
    asked = parser.parse_args()
    variables = environment(TORCH_CPP_LOG_LEVEL="ERROR")
    rows = [run(case, ranks, variables) for ranks in asked.ranks for case in asked.case]
    rows.append(sanitized(variables))
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps(rows, indent=1))
    failed = [row for row in rows if row["outcome"] not in ("passed", "left out")]
    print(f"{len(rows) - len(failed)} of {len(rows)} passed or left out; {asked.json}")
    return 1 if failed else 0


def run(case: str, ranks: int, variables: dict[str, str], prefix: tuple[str, ...] = ()) -> dict[str, object]:
    """Runs a case on this many ranks, and prints its row."""
    command = [*prefix, sys.executable, "-m", "tests.gpu.member", case]
    began = time.monotonic()
    texts: list[str] = []
    outcome = "passed"
    with started(command, variables, [subprocess.PIPE] * ranks, subprocess.STDOUT) as processes:
        try:
            ends = began + _DEADLINE_S
            texts += [one.communicate(timeout=max(1.0, ends - time.monotonic()))[0].decode() for one in processes]
        except subprocess.TimeoutExpired:
            outcome = "not done before the deadline"
    if outcome == "passed" and any(process.returncode for process in processes):
        outcome = f"failed: exit codes {[process.returncode for process in processes]}"
        print("\n".join(texts))
    row = {
        "case": " ".join([*prefix[:1], case]),
        "ranks": ranks,
        "outcome": outcome,
        "seconds": time.monotonic() - began,
    }
    print(f"{row['case']:40} {ranks:3} ranks {row['seconds']:7.1f} s  {outcome}", flush=True)
    return row


def sanitized(variables: dict[str, str]) -> dict[str, object]:
    """One case under compute-sanitizer, where that is installed."""
    case, ranks = _SANITIZED
    program = shutil.which("compute-sanitizer")
    if program is None:
        print("compute-sanitizer: left out, it is not installed here")
        return {"case": "compute-sanitizer", "ranks": ranks, "outcome": "left out", "seconds": 0.0}
    return run(
        case, ranks, variables, (program, "--tool", "memcheck", "--error-exitcode", "9", "--target-processes=all")
    )


if __name__ == "__main__":
    sys.exit(main())
