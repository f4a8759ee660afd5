"""`weft plan`: shows the schedule of an algorithm, and which algorithms there are."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys

from weft.cli import options
from weft.cli.command import Command, ended_by_interrupt
from weft.cli.verify import describe
from weft.errors import ArgumentError
from weft.schedule import Algorithm, Call, Planned, algorithms, plan

DESCRIPTION = """\
Shows the schedule that an algorithm makes for a group, in text form, with what it costs: steps, bytes, order of
reduction, and whether the verifier accepts it (it always should). `weft verify` reads what this prints.
"""

EPILOG = """\
examples:
  weft plan --list
  weft plan ring --ranks 8
  weft plan binomial --collective broadcast --root 2 --ranks 5 --rank 2
  weft plan slice-reduce --ranks 4 --memory symmetric --json
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("algorithm", nargs="?", metavar="ALGORITHM", help="its name, as --list shows it")
    parser.add_argument("--list", action="store_true", help="list the algorithms, of --collective or of all")
    parser.add_argument("--collective", metavar="NAME", help="what is carried out (default: all-reduce)")
    parser.add_argument("--ranks", type=options.at_least(1), default=4, metavar="N", help="(default: %(default)s)")
    options.add_hosts(parser)
    parser.add_argument(
        "--root", type=options.at_least(0), metavar="R", help="the root, where there is one (default: 0)"
    )
    parser.add_argument(
        "--memory", choices=("ordinary", "symmetric"), default="ordinary", help="of the caller (default: %(default)s)"
    )
    parser.add_argument(
        "--sizes",
        choices=("equal", "per-rank"),
        default="equal",
        help="whether blocks have a size per rank, as in the v collectives (default: %(default)s)",
    )
    parser.add_argument("--rank", type=options.at_least(0), metavar="R", help="show the program of this rank only")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _run(arguments: argparse.Namespace) -> int:
    try:
        if arguments.list:
            return _list(arguments)
        if arguments.algorithm is None:
            raise ArgumentError("name an algorithm, or give --list to see all")
        return _show(arguments)
    except ArgumentError as error:
        print(f"weft plan: {error}", file=sys.stderr)
        return 2


def _list(arguments: argparse.Namespace) -> int:
    found = algorithms(arguments.collective)
    if not found:
        known = ", ".join(dict.fromkeys(algorithm.collective for algorithm in algorithms()))
        raise ArgumentError(f"--collective {arguments.collective}: one of {known}")
    if arguments.json:
        print(json.dumps([dataclasses.asdict(algorithm) for algorithm in found], indent=1))
    else:
        print("\n".join(table(found)))
    return 0


def table(found: tuple[Algorithm, ...]) -> list[str]:
    """Algorithms, a line for each, under their collectives."""
    name_width = max(len(algorithm.name) for algorithm in found)
    lines: list[str] = []
    former = None
    for algorithm in found:
        if algorithm.collective != former:
            lines += [""] * (former is not None) + [algorithm.collective]
            former = algorithm.collective
        notes = [f"needs {algorithm.requirements}"] if algorithm.requirements else []
        notes += ["reproducible"] * algorithm.reproducible
        suffix = f" ({'; '.join(notes)})" if notes else ""
        lines.append(f"  {algorithm.name:<{name_width}}  {algorithm.summary}{suffix}")
    return lines


def _show(arguments: argparse.Namespace) -> int:
    call = Call(
        collective=arguments.collective or "all-reduce",
        ranks=arguments.ranks,
        root=arguments.root,
        hosts=arguments.hosts,
        memory=arguments.memory,
        sizes=arguments.sizes,
    )
    with ended_by_interrupt():
        planned = plan(arguments.algorithm, call, arguments.rank)
    if arguments.json:
        answer = {**dataclasses.asdict(planned), "verified": planned.problem is None, "text": planned.schedule.text}
        del answer["schedule"]
        print(json.dumps(answer, indent=1))
    else:
        print("\n".join(f"# {line}" for line in summary(planned)))
        print(planned.schedule.text, end="")
    return 0 if planned.problem is None else 1


def summary(planned: Planned) -> list[str]:
    """What stands above the schedule."""
    hosts = "one host" if len(planned.hosts) == 1 else f"hosts of {', '.join(map(str, planned.hosts))}"
    lines = [f"{planned.algorithm}: {planned.summary}", f"{planned.ranks} rank{'s' * (planned.ranks > 1)} on {hosts}"]
    if planned.refusal is not None:
        lines.append(f"such a group cannot take it: it {planned.refusal}")
    if planned.report is None:
        lines.append(f"not verified: {planned.problem}")
    else:
        lines += ["verified", *describe(planned.report).splitlines()]
    return lines


COMMAND = Command(
    name="plan",
    summary="show algorithms and their schedules",
    description=DESCRIPTION,
    epilog=EPILOG,
    add_arguments=_add_arguments,
    run=_run,
)
