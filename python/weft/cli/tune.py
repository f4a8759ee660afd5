"""The command `weft tune`: algorithm selection for a group by measurement, stored as a profile."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from weft import config
from weft.cli import options, values
from weft.cli.collective_names import usual
from weft.cli.command import Command
from weft.errors import ArgumentError, ConfigError
from weft.output.plain_text import Progress, Table, show
from weft.processes import local_ranks
from weft.processes.local_ranks import RanksError
from weft.processes.ports import free_ports
from weft.quantities import show_bytes
from weft.schedule import Schedule
from weft.settings import TRANSPORTS
from weft.tuning import tuner
from weft.tuning.selection import ChosenCandidate
from weft.tuning.tuner import Tuned, TuningPlan
from weft.world import init

DESCRIPTION = """\
Measures the parameters of the simulator's model on a running group, prices every algorithm of the family at every
size, measures where prices are close or the choice changes, and stores the choice as a profile. Groups
of the same shape on the same machines load it from then on: see WEFT_PROFILE in docs/reference/configuration.md.
Schedules of your own take part with --schedule; where they win, the profile keeps them.

Measurements on a busy machine are not stored, unless forced: at first all ranks sleep for a second while it checks
whether other processes use the processor; later it checks how far the times of equal calls differ. A profile says when
and where it was measured.

Under a launcher (torchrun, srun, mpirun, weft hosts) every rank runs it; without one it starts its own ranks on
this host.
"""

EPILOG = """\
examples:
  weft tune --ranks 4
  weft tune --ranks 4 --collectives all-reduce --schedule chain=chain.txt
  torchrun --nnodes 2 --nproc-per-node 8 ... --no-python weft tune
  sudo weft hosts --hosts 4 --gbps 1 -- weft tune --quick --output four-hosts.json
"""

_QUICK = TuningPlan(collectives=("all-reduce",), bytes_min=4 << 10, bytes_max=1 << 20, calibration_s=0.5, case_s=0.005)
_TIMEOUT_S = 600.0
_FORCE = " give --force to store it"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ranks",
        type=values.at_least(2),
        default=2,
        metavar="N",
        help="ranks to start without a launcher (default: 2)",
    )
    parser.add_argument(
        "--collectives",
        type=_collectives,
        metavar="NAME,...",
        help=f"collectives to tune (default: {','.join(tuner.COLLECTIVES)})",
    )
    parser.add_argument(
        "--bytes-max", type=values.size, metavar="SIZE", help="the largest message to try (default: 64M)"
    )
    parser.add_argument("--quick", action="store_true", help="all-reduce up to 1M only, measured briefly")
    parser.add_argument("--force", action="store_true", help="store the profile also if the machine was busy")
    options.add_schedules(parser, "also try")
    parser.add_argument("--transport", choices=TRANSPORTS[:4], help="how ranks are connected (default: auto)")
    parser.add_argument(
        "--output",
        type=values.output_file(values.DATA),
        metavar="FILE",
        help="file for the profile (.json; default: where it is loaded from)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _run(arguments: argparse.Namespace) -> int:
    try:
        schedules = options.user_schedules(arguments.schedule)
        if config.place().launcher == "none":
            return _start_ranks(arguments)
        return _tune(arguments, schedules)
    except (ArgumentError, ConfigError) as error:
        print(f"weft tune: {error}", file=sys.stderr)
        return 2


def _tune(arguments: argparse.Namespace, schedules: Mapping[str, Schedule] | None) -> int:
    """One rank's part, and the exit code."""
    plan = _plan(arguments)
    with init(transport=arguments.transport, timeout=_TIMEOUT_S, profile="none", schedules=schedules) as group:
        leads = group.rank == 0
        if not leads:
            tuner.tune(group, plan)
            return 0
        progress = Progress("weft tune", 1 + len(plan.collectives))
        parts = itertools.chain([0.0], itertools.repeat(1.0))
        tuned = tuner.tune(group, plan, lambda text: progress.advance(next(parts), f"weft tune: {text}"))
    path = arguments.output or config.profiles_directory() / tuned.profile.topology.file_name
    refused = tuned.problem is not None and not arguments.force
    if not refused:
        tuned.profile.save(path)
    _print(tuned, None if refused else path, as_json=arguments.json)
    if tuned.problem is not None:
        stored = "the profile is not stored. Tune again while nothing else runs, or" if refused else "stored anyway"
        print(f"weft tune: measured on a busy machine: {tuned.problem}: {stored}{_FORCE * refused}", file=sys.stderr)
    return 1 if refused else 0


def _start_ranks(arguments: argparse.Namespace) -> int:
    """Runs this same command once for every rank."""
    program = ["-m", "weft.cli", *sys.argv[1:]]
    try:
        local_ranks.run(local_ranks.commands(program, arguments.ranks, free_ports(1)[0]))
    except RanksError as error:
        print(f"weft tune: {error}", file=sys.stderr)
        return 1
    return 0


def _plan(arguments: argparse.Namespace) -> TuningPlan:
    plan = _QUICK if arguments.quick else TuningPlan()
    return TuningPlan(
        collectives=arguments.collectives or plan.collectives,
        bytes_min=plan.bytes_min,
        bytes_max=arguments.bytes_max or plan.bytes_max,
        calibration_s=plan.calibration_s,
        case_s=plan.case_s,
    )


def _print(tuned: Tuned, path: Path | None, *, as_json: bool) -> None:
    """Prints the result, and where it is stored; None: nowhere."""
    if as_json:
        where = None if path is None else str(path)
        print(json.dumps({"path": where, "problem": tuned.problem, **tuned.to_value()}, indent=1))
        return
    columns = (">at bytes", ">up to", ">predicted us", ">measured us", "algorithm")
    for collective, chosen in tuned.chosen.items():
        table = Table(*columns, title=f"\n{collective}")
        for one in chosen:
            table.add_row(*_cells(one))
        show(table)
    stored = "not stored" if path is None else path
    print(f"\nprofile {tuned.profile.hash}, {tuned.profile.measured}: {stored}")


def _cells(one: ChosenCandidate) -> tuple[str, ...]:
    return (
        show_bytes(one.bytes),
        "any" if one.up_to_bytes is None else show_bytes(one.up_to_bytes),
        f"{one.predicted_s * 1e6:.1f}",
        "" if one.measured_s is None else f"{one.measured_s * 1e6:.1f}",
        f"{one.candidate}: {one.why}",
    )


def _collectives(text: str) -> list[str]:
    return values.choices(tuner.COLLECTIVES)(",".join(usual(name.strip()) for name in text.split(",")))


COMMAND = Command(
    name="tune",
    description=DESCRIPTION,
    epilog=EPILOG,
    add_arguments=_add_arguments,
    run=_run,
)
