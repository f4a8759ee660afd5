"""The command `weft demo`: training of a small network with weft and with Gloo, compared."""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from weft import config
from weft.cli import values
from weft.cli.command import OPTIONAL_PACKAGES, Command, UsageError, missing
from weft.diagnosis import findings as diagnosis
from weft.processes.local_ranks import RanksError
from weft_lab import console, demo
from weft_lab.bench import launch, processes
from weft_lab.cli import emulated_options
from weft_lab.cli.busy import warn_if_busy
from weft_lab.demo.comparison import TrainingRun, draw, notes, table
from weft_lab.emulation import EmulationError, require_root

BACKENDS = ("weft", "gloo")
SCRIPT = Path(demo.__file__).with_name("train_digits.py")
ACCURACY_MIN = 0.97
_RANKS = 4

DESCRIPTION = """\
Trains LeNet-5 on scikit-learn's handwritten digits, data-parallel under torchrun: with backend "weft" and with Gloo, in
turns, epoch by epoch, in the same processes and from the same seeds. weft logs which transport connects which ranks.
Prints a table and draws both trainings' loss and throughput. Warns where others use this host's cores at the beginning.
With its own script, ranks and epochs, it ends with status 1 if fewer than 97 % of the test images are recognized. Needs
torch, scikit-learn and matplotlib.

With --hosts, the ranks are spread evenly over hosts that are emulated on this machine, as by `weft hosts`:
the ranks of a host use shared memory, and hosts use TCP.

With --gain, it then trains a larger network on 4 emulated hosts at 1 Gbit/s, for half a minute: by
DistributedDataParallel over Gloo and over weft, and by weft's own wrapper, whose communication continues in the next
forward. If hosts cannot be emulated, it prints the reason.
"""

EPILOG = """\
examples:
  weft demo --ranks 2 --epochs 10
  sudo weft demo --hosts 2 --ranks 4 --gbps 1
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ranks",
        type=values.count,
        default=_RANKS,
        metavar="N",
        help="processes on all hosts together (default: %(default)s)",
    )
    parser.add_argument("--epochs", type=values.count, metavar="N", help="passes over the data (default: the script's)")
    emulated_options.add_hosts(parser)
    emulated_options.add_rate(parser)
    parser.add_argument("--gain", action="store_true", help="then compare steps on 4 emulated hosts (needs root)")
    parser.add_argument(
        "--script",
        type=values.input_file,
        default=SCRIPT,
        metavar="FILE",
        help="the training script, which is given --backend weft,gloo and --out with {backend} for the name of either "
        "(default: weft_lab/demo/train_digits.py of the package)",
    )
    parser.add_argument(
        "--out",
        type=values.directory,
        default=Path("weft-demo"),
        metavar="DIR",
        help="output directory (default: %(default)s)",
    )


def _run(arguments: argparse.Namespace) -> int:
    lacking = _lacking(arguments)
    if lacking is not None:
        print(f"weft demo: {lacking}", file=sys.stderr)
        return 1
    warn_if_busy("demo")
    arguments.out.mkdir(parents=True, exist_ok=True)
    records = [arguments.out / f"{backend}.json" for backend in BACKENDS]
    for record in records:
        record.unlink(missing_ok=True)
    print(
        f"\ntraining on {_ranks(arguments)} with backends {' and '.join(map(repr, BACKENDS))} in turns; they take some "
        "seconds to start",
        flush=True,
    )
    command, environment = _command(arguments)
    done = subprocess.run(command, env=environment, check=False)
    if done.returncode != 0:
        print(f"weft demo: training ended with status {done.returncode}", file=sys.stderr)
        return 1
    runs = [TrainingRun.read(record) for record in records]
    picture = arguments.out / "demo.png"
    draw(picture, runs)
    console.show("", table(runs), f"\n{notes(*runs)}\npicture: {picture}")
    if arguments.gain:
        _show_gain()
    return _judged(runs, arguments)


def _show_gain() -> None:
    """Trains on emulated hosts, or prints why not."""
    print()
    found = diagnosis.emulated_hosts()
    if not found.good:
        print(f"gain on 4 emulated hosts: left out, {found.text}")
        return
    from weft_lab.experiment import gain  # loads torch

    print("training on 4 emulated hosts in three ways, for half a minute", flush=True)
    try:
        console.show(*gain.table(gain.measure()))
    except RanksError as error:
        print(f"weft demo: {error}", file=sys.stderr)


def _check(arguments: argparse.Namespace) -> None:
    if arguments.hosts == 1 and arguments.gbps is not None:
        raise UsageError("--gbps is the line rate of emulated hosts: give --hosts too")
    if arguments.ranks % arguments.hosts:
        raise UsageError(f"--ranks {arguments.ranks}: it must be a multiple of --hosts ({arguments.hosts})")


def _lacking(arguments: argparse.Namespace) -> str | None:
    """The requirements that are missing on this machine."""
    lacking = [module for module in OPTIONAL_PACKAGES if importlib.util.find_spec(module) is None]
    if lacking:
        return missing(lacking)
    if arguments.hosts > 1:
        try:
            require_root()
        except EmulationError as error:
            return str(error)
    return None


def _judged(runs: list[TrainingRun], arguments: argparse.Namespace) -> int:
    """The exit status. Only of the demo's own training it is known how well it should end."""
    if arguments.epochs is not None or arguments.ranks != _RANKS or arguments.script != SCRIPT:
        return 0
    poor = [run for run in runs if run.test_accuracy < ACCURACY_MIN]
    for run in poor:
        accuracy = f"{run.test_accuracy:.2%}"
        print(f"weft demo: {run.backend}'s test accuracy of {accuracy} is below {ACCURACY_MIN:.0%}", file=sys.stderr)
    return 1 if poor else 0


def _ranks(arguments: argparse.Namespace) -> str:
    if arguments.hosts == 1:
        return f"{arguments.ranks} ranks"
    rate = "" if arguments.gbps is None else f" at {arguments.gbps:g} Gbit/s"
    return f"{arguments.ranks} ranks on {arguments.hosts} emulated hosts{rate}"


def _command(arguments: argparse.Namespace) -> tuple[list[str], Mapping[str, str]]:
    """The command that starts the ranks, and its environment."""
    # weft's log has a line for each group: the hosts of its ranks, and the transports between them.
    environment = {"WEFT_LOG": "info", **config.environment(), "OMP_NUM_THREADS": "1"}
    script = arguments.script.resolve()
    out = arguments.out.resolve()
    program = [str(script), "--backend", ",".join(BACKENDS), "--out", str(out / "{backend}.json")]
    if arguments.epochs is not None:
        program += ["--epochs", str(arguments.epochs)]
    if arguments.hosts == 1:
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(arguments.ranks)]
        return [sys.executable, *torchrun, *program], environment
    ranks = processes.RankProcesses(
        program=program,
        ranks=arguments.ranks,
        port=launch.emulated_ports(1)[0],
        hosts=arguments.hosts,
        gbps=arguments.gbps,
        shared=[str(script.parent), str(out)],
        environment={**environment, **launch.QUIET_TORCH},
    )
    (command,) = processes.commands(ranks)
    return command


COMMAND = Command(
    name="demo",
    description=DESCRIPTION,
    epilog=EPILOG,
    add_arguments=_add_arguments,
    check=_check,
    run=_run,
)
