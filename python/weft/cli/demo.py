"""The command `weft demo`: training of a small network with weft and with Gloo, compared."""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path

from weft import config, demo
from weft.cli.command import Command
from weft.demo.comparison import TrainingRun, draw, notes, table

BACKENDS = ("weft", "gloo")
SCRIPT = Path(demo.__file__).with_name("train_digits.py")
NEEDED = {"torch": "torch", "sklearn": "scikit-learn", "matplotlib": "matplotlib"}
"""Modules, and the packages that they come in."""
ACCURACY_MIN = 0.97

DESCRIPTION = """\
Trains LeNet-5 on scikit-learn's handwritten digits, data-parallel under torchrun: with backend "weft", then
with Gloo from the same seeds. Prints a table and draws both runs' loss and throughput. Ends with status 1 if
fewer than 97 % of the test images are recognized. Needs what `pip install 'weft[demo]'` installs.
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ranks", type=int, default=4, metavar="N", help="processes (default: %(default)s)")
    parser.add_argument("--epochs", type=int, metavar="N", help="passes over the data (default: the script's)")
    parser.add_argument("--hosts", type=int, default=1, metavar="N", help="on N emulated hosts (needs root)")
    parser.add_argument("--gbps", type=float, metavar="G", help="line rate of emulated hosts")
    parser.add_argument(
        "--script",
        type=Path,
        default=SCRIPT,
        metavar="FILE",
        help="the training script (default: weft/demo/train_digits.py of the package)",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("weft-demo"), metavar="DIR", help="where to write (default: %(default)s)"
    )


def _run(arguments: argparse.Namespace) -> int:
    if not arguments.script.exists():
        print(f"weft demo: there is no {arguments.script}", file=sys.stderr)
        return 1
    missing = [package for module, package in NEEDED.items() if importlib.util.find_spec(module) is None]
    if missing:
        print(f"weft demo: it needs {', '.join(missing)}: pip install 'weft[demo]'", file=sys.stderr)
        return 1
    if arguments.ranks % arguments.hosts:
        print(f"weft demo: --ranks must be a multiple of --hosts ({arguments.hosts})", file=sys.stderr)
        return 1
    arguments.out.mkdir(parents=True, exist_ok=True)
    runs = []
    for backend in BACKENDS:
        record = arguments.out / f"{backend}.json"
        record.unlink(missing_ok=True)
        print(
            f"\ntraining on {arguments.ranks} ranks with backend {backend!r}, which take some seconds to start",
            flush=True,
        )
        done = subprocess.run(
            _command(arguments, backend, record),
            env={**config.environment(), "OMP_NUM_THREADS": "1"},
            check=False,
        )
        if done.returncode != 0:
            print(f"weft demo: training with {backend} ended with status {done.returncode}", file=sys.stderr)
            return 1
        runs.append(TrainingRun.read(record))
    picture = arguments.out / "demo.png"
    draw(picture, runs)
    print(f"\n{table(runs)}\n\n{notes(*runs)}\npicture: {picture}", flush=True)
    return _judged(runs)


def _judged(runs: list[TrainingRun]) -> int:
    poor = [run for run in runs if run.test_accuracy < ACCURACY_MIN]
    for run in poor:
        accuracy = f"{run.test_accuracy:.2%}"
        print(f"weft demo: {run.backend}'s test accuracy of {accuracy} is below {ACCURACY_MIN:.0%}", file=sys.stderr)
    return 1 if poor else 0


def _command(arguments: argparse.Namespace, backend: str, record: Path) -> list[str]:
    script = [str(arguments.script), "--backend", backend, "--out", str(record.resolve())]
    if arguments.epochs is not None:
        script += ["--epochs", str(arguments.epochs)]
    if arguments.hosts == 1:
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(arguments.ranks)]
        return [sys.executable, *torchrun, *script]
    options = ["--hosts", str(arguments.hosts), "--ranks-per-host", str(arguments.ranks // arguments.hosts)]
    if arguments.gbps is not None:
        options += ["--gbps", str(arguments.gbps)]
    return [sys.executable, "-m", "weft.cli", "hosts", *options, "--", sys.executable, *script]


COMMAND = Command(
    name="demo",
    summary="train a network with weft and with Gloo, and compare",
    description=DESCRIPTION,
    add_arguments=_add_arguments,
    run=_run,
)
