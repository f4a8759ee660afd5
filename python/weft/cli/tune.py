"""The command `weft tune`: algorithm selection for a group by measurement, stored as a profile."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import weft
from weft import config
from weft.bench import launch, processes
from weft.bench.sizes import show_bytes
from weft.cli import options, values
from weft.cli.collective_names import usual
from weft.cli.command import Command
from weft.errors import ArgumentError, ConfigError
from weft.schedule import Schedule
from weft.tuning import tuner
from weft.tuning.selection import ChosenCandidate
from weft.tuning.tuner import Tuned, TuningPlan

DESCRIPTION = """\
Measures the parameters of the simulator's model on a running group, prices every algorithm of the family at every
size, checks by measurement where prices are close or the choice changes, and stores the choice as a profile. Groups
of the same shape on the same machines load it from then on: see WEFT_PROFILE in docs/reference/configuration.md.
Schedules of your own take part with --schedule; where they win, the profile keeps them.

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
        help=f"which to tune (default: {','.join(tuner.COLLECTIVES)})",
    )
    parser.add_argument(
        "--bytes-max", type=values.size, metavar="SIZE", help="the largest message to try (default: 64M)"
    )
    parser.add_argument("--quick", action="store_true", help="all-reduce up to 1M only, measured briefly")
    options.add_schedules(parser, "also try")
    parser.add_argument("--transport", choices=config.TRANSPORTS[:3], help="how ranks are connected (default: auto)")
    parser.add_argument(
        "--output",
        type=values.output_file(values.DATA),
        metavar="FILE",
        help="where the profile goes (.json; default: where it is loaded from)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _run(arguments: argparse.Namespace) -> int:
    try:
        schedules = options.user_schedules(arguments.schedule)
        if config.place().launcher == "none":
            return _start_ranks(arguments)
        _tune(arguments, schedules)
    except (ArgumentError, ConfigError) as error:
        print(f"weft tune: {error}", file=sys.stderr)
        return 2
    return 0


def _tune(arguments: argparse.Namespace, schedules: Mapping[str, Schedule] | None) -> None:
    """One rank's part."""
    with weft.init(transport=arguments.transport, timeout=_TIMEOUT_S, profile="none", schedules=schedules) as group:
        leads = group.rank == 0
        tuned = tuner.tune(group, _plan(arguments), _progress if leads else lambda _: None)
        if leads:
            path = arguments.output or config.profiles_directory() / tuned.profile.topology.file_name
            tuned.profile.save(path)
            _print(tuned, path, as_json=arguments.json)


def _start_ranks(arguments: argparse.Namespace) -> int:
    """Runs this same command once for every rank."""
    program = ["-m", "weft.cli", *sys.argv[1:]]
    try:
        processes.run(processes.RankProcesses(program=program, ranks=arguments.ranks, port=launch.free_ports(1)[0]))
    except processes.BenchError as error:
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


def _progress(text: str) -> None:
    print(f"weft tune: {text}", file=sys.stderr, flush=True)


def _print(tuned: Tuned, path: Path, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"path": str(path), **tuned.to_value()}, indent=1))
        return
    for collective, chosen in tuned.chosen.items():
        print(f"\n{collective}")
        print(f"{'at bytes':>9} {'up to':>9} {'predicted us':>13} {'measured us':>12}  algorithm")
        for line in _lines(chosen):
            print(line)
    print(f"\nprofile {tuned.profile.hash}: {path}")


def _lines(chosen: Sequence[ChosenCandidate]) -> list[str]:
    lines = []
    for one in chosen:
        up_to = "any" if one.up_to_bytes is None else show_bytes(one.up_to_bytes)
        measured = "" if one.measured_s is None else f"{one.measured_s * 1e6:.1f}"
        lines.append(
            f"{show_bytes(one.bytes):>9} {up_to:>9} {one.predicted_s * 1e6:>13.1f} {measured:>12}  "
            f"{one.candidate}: {one.why}"
        )
    return lines


def _collectives(text: str) -> list[str]:
    return values.choices(tuner.COLLECTIVES)(",".join(usual(name.strip()) for name in text.split(",")))


COMMAND = Command(
    name="tune",
    description=DESCRIPTION,
    epilog=EPILOG,
    add_arguments=_add_arguments,
    run=_run,
)
