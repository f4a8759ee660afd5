"""The part of `weft experiment` for LeNet's strong scaling."""

from __future__ import annotations

import argparse
import json

from weft.cli import values
from weft.cli.command import UsageError, report_progress
from weft_lab import console
from weft_lab.cli import emulated_options, experiment_servers
from weft_lab.emulation import require_root
from weft_lab.experiment import lenet

__all__ = ["ROUNDS", "STEPS", "add_arguments", "check", "check_other", "run"]

ROUNDS, STEPS = 20, 22
"""Twenty epochs of the digits by the default batch."""
_BATCH = 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this experiment only."""
    group = parser.add_argument_group("of lenet")
    group.add_argument(
        "--shapes",
        type=values.listed(emulated_options.shape),
        metavar="HxR,...",
        help="emulated hosts x ranks on each; more than one host needs root "
        f"(default: {','.join(f'{hosts}x{ranks}' for hosts, ranks in lenet.SHAPES)})",
    )


def check_other(arguments: argparse.Namespace) -> None:
    """Checks that another experiment has none of them."""
    experiment_servers.check_absent(arguments, ("shapes",), "lenet")


def check(arguments: argparse.Namespace) -> None:
    """Checks that the options fit together."""
    experiment_servers.check_contenders(arguments, tuple(lenet.CONTENDERS))
    if arguments.hosts != 1 or arguments.ranks is not None or arguments.ratio is not None:
        raise UsageError("--hosts, --ranks and --ratio are for overlap: give --shapes")
    batch = arguments.batch or _BATCH
    for hosts, ranks in arguments.shapes or ():
        if not 2 <= hosts * ranks <= batch:
            raise UsageError(
                f"--shapes {hosts}x{ranks}: expected 2 ranks or more, and at most one for each sample of the batch, "
                f"{batch}"
            )


def run(arguments: argparse.Namespace) -> int:
    """Measures, prints and draws.

    Raises:
        EmulationError: Hosts cannot be emulated here.
        weft.processes.local_ranks.RanksError: A process has failed, or no contender is left.
    """
    shapes = arguments.shapes or list(lenet.SHAPES)
    if any(hosts > 1 for hosts, _ in shapes):
        require_root()
    outcomes = lenet.measure(
        shapes,
        arguments.out,
        contenders=lenet.present(arguments.contenders or list(lenet.CONTENDERS), report_progress),
        gbps=arguments.gbps,
        batch=arguments.batch or _BATCH,
        rounds=arguments.rounds,
        steps=arguments.steps,
    )
    picture = arguments.out / "lenet.png"
    lenet.draw(outcomes, picture)
    if arguments.json:
        print(json.dumps([outcome.to_value() for outcome in outcomes]))
    else:
        console.show(*lenet.tables(outcomes), f"measured: {arguments.out}/lenet-*.json; picture: {picture}")
    return 0
