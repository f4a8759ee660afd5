"""Measures weft on the GPUs of this machine, beside Gloo and, with several GPUs, NCCL.

`make bench-gpu` runs it. It needs python3 with torch, and weft's wheel in build/wheels.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from tests.gpu.package import ROOT, environment, started

_DEADLINE_S = 600.0
_SLOWED_MAX = 1.03
_COPY_LIMIT_MIN = 0.85
_OVERLAP_MIN = 1.6
_GLOO_MIN = 5.0

Rows = list[dict[str, Any]]


def main() -> int:
    """Runs all measurements, prints tables and verdicts, and writes them."""
    parser = argparse.ArgumentParser(prog="python -m benches.gpu", description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "gpu")
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("torch finds no GPU here")
    variables = environment(TORCH_CPP_LOG_LEVEL="ERROR")
    devices = torch.cuda.device_count()
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(0), "devices": devices, "torch": torch.__version__}
    for measurement in ("copies", "paths"):
        found[measurement] = _measured("weft", measurement, 1, variables)
        for row in found[measurement]:
            print(f"1 rank, {measurement:10} {_shown(row)}", flush=True)
    for ranks in asked.ranks:
        backends = ["weft", "gloo", *(["nccl"] if 1 < ranks <= devices else [])]
        for measurement in ("all-reduce", "product", "training"):
            for backend in backends:
                rows = _measured(backend, measurement, ranks, variables)
                found[f"{measurement} {ranks} {backend}"] = rows
                for row in rows:
                    print(f"{ranks} ranks, {backend:5} {measurement:10} {_shown(row)}", flush=True)
    verdicts = [text for ranks in asked.ranks for text in _verdicts(found, ranks, devices)]
    print("\n".join(verdicts))
    asked.output.mkdir(parents=True, exist_ok=True)
    (asked.output / "bench.json").write_text(json.dumps({**found, "verdicts": verdicts}, indent=1))
    return 1 if any(text.startswith("MISSED") for text in verdicts) else 0


def _measured(backend: str, measurement: str, ranks: int, variables: dict[str, str]) -> Rows:
    """The rows of rank 0; none, with a line on the reason, if it failed."""
    command = [sys.executable, "-m", "benches.gpu.rank", backend, measurement]
    outputs = [subprocess.PIPE, *[subprocess.DEVNULL] * (ranks - 1)]
    text = b""
    with contextlib.suppress(subprocess.TimeoutExpired), started(command, variables, outputs) as processes:
        printed, _ = processes[0].communicate(timeout=_DEADLINE_S)
        if not any(process.wait(30) for process in processes):
            text = printed
    if not text:
        print(f"{ranks} ranks, {backend} {measurement}: failed", file=sys.stderr)
        return []
    return list(json.loads(text.splitlines()[-1]))


def _shown(row: dict[str, Any]) -> str:
    return "  ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in row.items()
    )


def _verdicts(found: dict[str, Any], ranks: int, devices: int) -> list[str]:
    """Returns the verdicts on this many ranks; failed measurements have missed their targets."""
    own = {row["bytes"]: row for row in found[f"all-reduce {ranks} weft"]}
    gloo = {row["bytes"]: row for row in found[f"all-reduce {ranks} gloo"]}
    copies = {row["copy"]: row["bytes_per_s"] for row in found["copies"]}
    product = {row["product"]: row["seconds"] for row in found[f"product {ranks} weft"]}
    if not (own and gloo and copies and product):
        return [f"MISSED {ranks} ranks: a measurement failed"]
    large = 1 << 26
    # Ranks that share a GPU share its copy engines.
    sharing = -(-ranks // devices)
    rate = own[large]["bytes_per_s"] * sharing
    one_way = min(copies["to host"], copies["to device"])
    slowed = product["beside all-reduces"] / min(product["alone"], product["alone again"])
    return [
        _verdict(rate >= _COPY_LIMIT_MIN * one_way, f"{ranks} ranks: {rate / one_way:.1%} of the copy limit at 64 MiB"),
        _verdict(2 * rate >= _OVERLAP_MIN * one_way, f"{ranks} ranks: both directions {2 * rate / one_way:.2f} x one"),
        _verdict(slowed <= _SLOWED_MAX, f"{ranks} ranks: a product during all-reduces takes {slowed:.3f} x"),
        _verdict(
            own[large]["seconds"] * _GLOO_MIN <= gloo[large]["seconds"],
            f"{ranks} ranks: {gloo[large]['seconds'] / own[large]['seconds']:.1f} x Gloo at 64 MiB",
        ),
    ]


def _verdict(met: bool, text: str) -> str:
    return f"{'met   ' if met else 'MISSED'} {text}"


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
