"""The command `python -m benches.prediction`: profiles, measured steps, predictions, errors.

A second run with the same output measures only the missing studies.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from benches import record
from benches.prediction import sockets
from benches.prediction.compare import ComparedStep, compare, median_error, table
from benches.prediction.settings import HOSTS, LINES_GBPS, NETWORKS, studies
from weft import machine
from weft_lab.bench.launch import QUIET_TORCH
from weft_lab.emulation import require_root
from weft_lab.experiment import overlap
from weft_lab.prediction.profile import TrainingProfile
from weft_lab.prediction.profiling import profile_model

_PROFILED_STEPS = 10
_PROFILE_S = 600.0
_ONE_THREAD = {"OMP_NUM_THREADS": "1", **QUIET_TORCH}
"""As measured ranks have it."""


def main() -> int:
    """Runs it."""
    arguments = _arguments()
    require_root()
    arguments.output.mkdir(parents=True, exist_ok=True)
    measured = _machine(arguments.output / "machine.json")
    compared: list[ComparedStep] = []
    whole = list(
        studies(arguments.networks, arguments.hosts, arguments.gbps, 1 if arguments.quick else 3, arguments.steps)
    )
    for number, study in enumerate(whole, 1):
        _print_progress(f"{number} of {len(whole)}: {study.model}, {study.hosts} hosts, {study.gbps:g} Gbit/s")
        profile = _profile(arguments.output / f"{study.model}.profile.json", study.model)
        result = overlap.measure(study, arguments.output / "steps", _print_progress)
        compared += compare(result, profile, measured, machine.usable_cores())
    text = table(compared)
    print(text)
    rows = [{**dataclasses.asdict(step), "error": step.error} for step in compared]
    title = f"Predicted and measured training steps: median error {median_error(compared):.1%}"
    record.write(arguments.output / "record", title, rows, text)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benches.prediction", description=__doc__)
    parser.add_argument("--networks", type=lambda text: text.split(","), default=list(NETWORKS), metavar="NAME,...")
    parser.add_argument("--hosts", type=_integers, default=list(HOSTS), metavar="N,...")
    parser.add_argument("--gbps", type=_numbers, default=list(LINES_GBPS), metavar="G,...")
    parser.add_argument("--steps", type=int, default=3, metavar="N", help="timed ones of a block")
    parser.add_argument("--quick", action="store_true", help="one round: a look, not a record")
    parser.add_argument("--output", type=Path, default=Path("build/validate-prediction"), metavar="DIRECTORY")
    return parser.parse_args()


def _integers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def _machine(path: Path) -> dict[str, Any]:
    if not path.exists():
        _print_progress("measuring the cost of a byte through a socket")
        path.write_text(json.dumps(sockets.measured()) + "\n")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _profile(path: Path, model: str) -> TrainingProfile:
    if not path.exists():
        profile_model(model, NETWORKS[model], _PROFILED_STEPS, _PROFILE_S, _ONE_THREAD).save(path)
    return TrainingProfile.load(path)


def _print_progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
