"""The part of `weft experiment` for ranks that come and go."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

from weft.cli import values
from weft.cli.command import UsageError, report_progress
from weft_lab import console
from weft_lab.cli import experiment_servers
from weft_lab.emulation import require_root
from weft_lab.experiment.elastic import faults
from weft_lab.experiment.elastic.study import CONTENDERS, ElasticStudy

__all__ = ["add_arguments", "check", "check_other", "run"]

TASKS = ("language", "lenet", "perceptron")
_USUAL = TASKS[:2]
_STEPS = {"language": 300, "lenet": 400, "perceptron": 100}
_SAMPLES = {"language": 4, "lenet": 16, "perceptron": 48}
"""The default batch of each of the parts."""
_QUICK_STEPS = 60
_GBPS = 1.0
_TIMEOUT_S = 0.5
_FAULTS = 6
_OWN = ("train", "every", "timeout", "faults", "seed", "faults_count")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this experiment only."""
    group = parser.add_argument_group("of elastic")
    group.add_argument(
        "--train",
        type=values.choices(TASKS, everything="all"),
        metavar="NAME,...",
        help=f"of {', '.join(TASKS)}, whose state is large, or all (default: {','.join(_USUAL)})",
    )
    group.add_argument(
        "--every", type=values.count, metavar="N", help="steps from one commit of weft's to the next (default: 1)"
    )
    group.add_argument(
        "--timeout",
        type=values.within(0.2, 60.0),
        metavar="SECONDS",
        help="after which weft and torchft give up a rank that does not answer; weft a host after a second or more "
        f"(default: {_TIMEOUT_S:g})",
    )
    schedule = group.add_mutually_exclusive_group()
    schedule.add_argument(
        "--faults",
        type=_schedule,
        metavar="LIST",
        help="the schedule: KIND:NUMBER@STEP with commas between, such as kill:1@40,join@80,stop:2@120+1.5,cut:3@160+1 "
        "(default: one of each kind, and a kill of rank 0)",
    )
    schedule.add_argument(
        "--seed", type=values.within(0, (1 << 32) - 1), metavar="N", help="a random schedule, the same for a seed"
    )
    group.add_argument(
        "--faults-count", type=values.count, metavar="K", help=f"faults of a random schedule (default: {_FAULTS})"
    )


def _schedule(text: str) -> tuple[faults.Fault, ...]:
    try:
        return faults.parsed(text)
    except faults.FaultError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def check_other(arguments: argparse.Namespace) -> None:
    """Checks that another experiment has none of them."""
    experiment_servers.check_absent(arguments, _OWN, "elastic")


def check(arguments: argparse.Namespace) -> None:
    """Checks that the options fit together."""
    experiment_servers.check_contenders(arguments, tuple(CONTENDERS))
    if arguments.ratio is not None or arguments.rounds is not None:
        raise UsageError("--ratio and --rounds are for overlap: a training of elastic runs once")
    for name in ("hosts", "ranks"):
        if (getattr(arguments, name) or 1) > faults.VIRTUAL_RANKS:
            raise UsageError(f"--{name}: expected at most {faults.VIRTUAL_RANKS}, the number of virtual ranks")
    if (arguments.ranks or arguments.hosts) < arguments.hosts:
        raise UsageError(f"--ranks {arguments.ranks}: expected at least one for each of {arguments.hosts} hosts")
    if arguments.faults_count is not None and arguments.seed is None:
        raise UsageError("--faults-count is for a random schedule: give --seed as well")
    if arguments.gbps is not None and arguments.hosts == 1:
        raise UsageError("--gbps is the line rate of emulated hosts: give --hosts as well")
    try:
        for study in _studies(arguments):
            study.placement("weft")
    except faults.FaultError as error:
        raise UsageError(f"--faults: {error}") from None


def run(arguments: argparse.Namespace) -> int:
    """Trains, prints and draws.

    Raises:
        EmulationError: Hosts cannot be emulated here.
        weft.processes.local_ranks.RanksError: A process has failed.
    """
    from weft_lab.experiment.elastic import measuring, picture, report

    if arguments.hosts > 1:
        require_root()
    arguments.contenders = measuring.present(arguments.contenders or tuple(CONTENDERS), report_progress)
    outcomes = [measuring.measure(study, arguments.out) for study in _studies(arguments)]
    drawing = arguments.out / "elastic.svg"
    picture.draw(outcomes, drawing)
    if arguments.json:
        print(json.dumps([outcome.to_value() for outcome in outcomes]))
        return 0
    for outcome in outcomes:
        console.show(*report.tables(outcome), "")
    print(f"measured: {arguments.out}/elastic-*.json; picture: {drawing}")
    return 0


def _studies(arguments: argparse.Namespace) -> Iterator[ElasticStudy]:
    hosts = arguments.hosts
    ranks = arguments.ranks or (hosts if hosts > 1 else faults.VIRTUAL_RANKS)
    for task in arguments.train or _USUAL:
        steps = _QUICK_STEPS if arguments.quick else arguments.steps or _STEPS[task]
        yield ElasticStudy(
            task=task,
            hosts=hosts,
            ranks=ranks,
            gbps=(arguments.gbps or _GBPS) if hosts > 1 else None,
            samples=arguments.batch or _SAMPLES[task],
            steps=steps,
            every=arguments.every or 1,
            timeout_s=arguments.timeout or _TIMEOUT_S,
            faults=faults.text_of(_chosen(arguments, hosts, ranks, steps)),
            contenders=tuple(arguments.contenders or CONTENDERS),
        )


def _chosen(arguments: argparse.Namespace, hosts: int, ranks: int, steps: int) -> tuple[faults.Fault, ...]:
    if arguments.faults is not None:
        given: tuple[faults.Fault, ...] = arguments.faults
        return given
    if arguments.seed is not None:
        count = arguments.faults_count or _FAULTS
        return faults.drawn(arguments.seed, count, hosts=hosts, ranks=ranks, steps=steps)
    return faults.standard(hosts=hosts, ranks=ranks, steps=steps)
