"""Measures weft on the GPUs of this machine, beside Gloo and NCCL, in a call of ten minutes.

`make bench-gpu` runs it. It needs python3 with torch, and weft's wheel in build/wheels. Results are
written as they come: see `tools/gpu/results.py`.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.gpu.package import LOOPBACK, ROOT, environment, output_folder
from tools.gpu.results import Results

__all__ = ["MEASUREMENTS", "Measurement", "main"]


@dataclasses.dataclass(frozen=True, slots=True)
class Measurement:
    """A measurement of `rank.py`."""

    name: str
    backend: str
    measurement: str
    ranks: int
    limit_s: float
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)


MEASUREMENTS = (
    Measurement("a product beside exchanges", "weft", "beside", 2, 90),
    Measurement("rates, 2 ranks", "weft", "rates", 2, 90),
    Measurement("backward, 2 ranks", "weft", "backward", 2, 80),
    Measurement("rates, 4 ranks", "weft", "rates", 4, 90),
    Measurement("backward, 4 ranks", "weft", "backward", 4, 90),
    Measurement("copies", "weft", "copies", 1, 40),
    Measurement("copies by node", "weft", "paths", 1, 40),
    Measurement("training, 2 ranks", "weft", "training", 2, 60),
    Measurement("training over Gloo, 2 ranks", "gloo", "training", 2, 60),
    Measurement("rates with tiles of 16 MiB, 2 ranks", "weft", "rates", 2, 60, {"WEFT_DEVICE_TILE": "16M"}),
    Measurement("all-reduces over NCCL, 2 ranks", "nccl", "all-reduce", 2, 40),
    Measurement("a product beside NCCL, 2 ranks", "nccl", "beside", 2, 90),
    Measurement("all-reduces, 8 ranks", "weft", "all-reduce", 8, 60),
)
"""The most important first: those for which there is no time are left out."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs all measurements, and writes their results."""
    parser = argparse.ArgumentParser(prog="python -m benches.gpu", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4, 8], help="the numbers of ranks")
    parser.add_argument("--only", nargs="+", default=[one.measurement for one in MEASUREMENTS])
    parser.add_argument("--seconds", type=float, default=570.0, help="for everything (default: %(default)s)")
    parser.add_argument("--output", type=Path, help="the folder for results (default: $OUT, or in build/gpu)")
    asked = parser.parse_args(arguments)
    results = Results(output_folder(asked.output, "bench"), asked.seconds)
    variables = environment(TORCH_CPP_LOG_LEVEL="ERROR", PYTHONUNBUFFERED=1, OMP_NUM_THREADS=2, **LOOPBACK)
    results.say(f"==== bench, {time.strftime('%FT%TZ', time.gmtime())}, at most {asked.seconds:.0f} s")
    for one in MEASUREMENTS:
        if one.ranks in asked.ranks and one.measurement in asked.only:
            command = [sys.executable, "-m", "benches.gpu.rank", one.backend, one.measurement]
            results.step(one.name, command, one.ranks, {**variables, **one.settings}, one.limit_s)
    return results.end()


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
