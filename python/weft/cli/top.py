"""The command `weft top`: what every rank of a running job does."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from typing import Any

from weft import config
from weft.cli import values
from weft.cli.command import Command
from weft.errors import ArgumentError, Error
from weft.observability.live_status import LiveJob, RankRates, ask, rates, running_jobs
from weft.observability.live_view import text

DESCRIPTION = """\
Shows a job while it runs: a sentence that says which rank, host or link the others wait for, and for every rank its
rates, the share of its time in which it waits, its traffic and what it does now. It works while a rank's Python is
stuck: progress threads answer, over the job's own links. Run it as the job's user on any host of the job. Without JOB,
the job of this user that began last on this host is taken. A job that runs with WEFT_FLIGHT_DIR=none cannot be asked.
"""

EPILOG = """\
examples:
  weft top                    the job that began last, again every second
  weft top --once             one look, for a script or a log
  weft top --once --json      the same for programs
"""

_CLEAR = "\x1b[H\x1b[2J"
_SHORTEST_S = 0.2


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", nargs="?", metavar="JOB", help="the name of a job, such as job-9d52f392f5097cf8")
    parser.add_argument("--once", action="store_true", help="look once, and end")
    parser.add_argument("--json", action="store_true", help="print JSON, a line for each look")
    parser.add_argument(
        "--interval",
        type=values.at_least(_SHORTEST_S),
        default=1.0,
        metavar="S",
        help="seconds between looks, over which rates are taken (default: %(default)s)",
    )
    parser.add_argument(
        "--ranks", type=values.at_least(1), default=32, metavar="N", help="show at most N ranks (default: %(default)s)"
    )


def _run(arguments: argparse.Namespace) -> int:
    try:
        job = _job(arguments.job)
        before = ask(job)
        while True:
            time.sleep(arguments.interval)
            after = ask(job)
            _show(arguments, job, after, rates(before, after))
            if arguments.once:
                return 0
            before = after
    except KeyboardInterrupt:
        return 0
    except (ArgumentError, OSError) as error:
        print(f"weft top: {error}", file=sys.stderr)
        return 2
    except Error as error:
        print(f"weft top: {error}", file=sys.stderr)
        return 1


def _job(name: str | None) -> LiveJob:
    base = config.flight_directory(config.load())
    if base is None:
        raise ArgumentError("WEFT_FLIGHT_DIR is none: set it to the directory of the job's")
    found = running_jobs(base)
    if name is not None:
        found = [job for job in found if job.name == name]
    if not found:
        which = "no job" if name is None else f"no job {name}"
        raise ArgumentError(
            f"{which} of this user answers on this host in {base}: expected one that runs now, as this user, with the "
            "same WEFT_FLIGHT_DIR"
        )
    if len(found) > 1:
        others = ", ".join(job.name for job in found[1:])
        print(f"weft top: {found[0].name}, which began last; others run too: {others}", file=sys.stderr)
    return found[0]


def _show(arguments: argparse.Namespace, job: LiveJob, report: dict[str, Any], found: dict[int, RankRates]) -> None:
    if arguments.json:
        by_rank = {str(rank): dataclasses.asdict(of_rank) for rank, of_rank in found.items()}
        print(json.dumps({"job": job.name, **report, "rates": by_rank}), flush=True)
        return
    clear = _CLEAR if sys.stdout.isatty() and not arguments.once else ""
    print(f"{clear}{job.name}: {text(report, found, ranks_max=arguments.ranks)}", flush=True)


COMMAND = Command(
    name="top",
    description=DESCRIPTION,
    epilog=EPILOG,
    add_arguments=_add_arguments,
    run=_run,
)
