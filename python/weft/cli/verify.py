"""The command `weft verify`: verification of a schedule by simulated execution of all ranks."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from weft.cli import options
from weft.cli.command import Command, ended_by_interrupt
from weft.errors import ArgumentError, ScheduleError
from weft.schedule import Report, Schedule

DESCRIPTION = """\
Reads the schedules of all ranks from a file in text form and executes them together, symbolically: every
contribution exactly once, no race, no deadlock, every signal waited for, the same result everywhere. Prints
their costs, or the rank, step and chunk of the first error; then it ends with status 1.
"""

EPILOG = """\
examples:
  weft plan ring --ranks 4 > ring.txt && weft verify ring.txt
  weft verify own.txt --mapped scratch --hosts 2,2
"""

MAPPED = ("none", "scratch", "all")
TREES_SHOWN = 4
TREE_WIDTH = 90


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the schedules; - for standard input")
    parser.add_argument(
        "--mapped",
        choices=MAPPED,
        default="none",
        help="which memory of their peers the ranks of one host can reach: none, temporary memory, or also the user's "
        "(symmetric memory) (default: %(default)s)",
    )
    options.add_hosts(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def _run(arguments: argparse.Namespace) -> int:
    try:
        schedule = Schedule(sys.stdin.read()) if arguments.file == "-" else Schedule.load(Path(arguments.file))
    except (OSError, UnicodeDecodeError) as error:
        print(f"weft verify: {arguments.file}: {error}", file=sys.stderr)
        return 2
    try:
        with ended_by_interrupt():
            report = schedule.verify(arguments.mapped, arguments.hosts)
    except ScheduleError as error:
        if arguments.json:
            print(json.dumps({"verified": False, "problem": {"message": str(error), **vars(error)}}, indent=1))
        else:
            print(f"{arguments.file}: not verified: {error}")
        return 1
    except ArgumentError as error:
        print(f"weft verify: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        print(json.dumps({"verified": True, "report": dataclasses.asdict(report)}, indent=1))
    else:
        print(f"{arguments.file}: verified\n{describe(report)}")
    return 0


def describe(report: Report) -> str:
    """The costs and results of a valid schedule, in lines for people."""
    root = "" if report.root is None else f" with root {report.root}"
    lines = [
        f"  {report.collective}{root}, {_many(report.ranks, 'rank')}, {_many(report.chunks, 'chunk')}",
        f"  steps       {_many(report.latency_steps, 'signal')} one after the other",
        f"  sent        {_shares(report.sent)}",
        f"  read        {_shares(report.read)}",
    ]
    trees = dict.fromkeys(report.trees)
    lines += [f"  order       {_cut(tree)}" for tree in list(trees)[:TREES_SHOWN]]
    if len(trees) > TREES_SHOWN:
        lines.append(f"              and {len(trees) - TREES_SHOWN} more: --json has the order of every chunk")
    if report.reproducible:
        lines.append("              in one step, in the order of ranks: reproducible")
    return "\n".join(lines)


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _cut(text: str) -> str:
    return text if len(text) <= TREE_WIDTH else f"{text[: TREE_WIDTH - 4]} ..."


def _shares(shares: tuple[float | None, ...]) -> str:
    known = [share for share in shares if share is not None]
    if len(known) < len(shares):
        return "as much as the sizes in the call say"
    most, least = max(known, default=0.0), min(known, default=0.0)
    if most == 0:
        return "nothing"
    who = f"rank {known.index(most)}, least {least:.4g}" if least < most else "each rank"
    return f"{most:.4g} times the message ({who})"


COMMAND = Command(
    name="verify",
    description=DESCRIPTION,
    epilog=EPILOG,
    add_arguments=_add_arguments,
    run=_run,
)
