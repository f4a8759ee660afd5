"""The command `weft top`: what every rank of a running job does."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from weft import config
from weft.cli import values
from weft.cli.command import Command, UsageError, entry_point
from weft.errors import ArgumentError, Error
from weft.observability.live_status import LiveJob, RankRates, RemoteJob, Watch, running_jobs
from weft.observability.live_view import View, text

DESCRIPTION = """\
Shows a job while it runs: a sentence that says which rank, host or link the others wait for, and for every rank its
rates, the share of its time in which it waits, its traffic and what it does now. It works while a rank's Python is
stuck: progress threads answer, over the job's own links. Run it as the job's user on any host of the job: without JOB,
the job of this user that began last on this host is taken (none with WEFT_FLIGHT_DIR=none). Or give it the address
where the ranks meet, from anywhere, with the job's secret or certificates (WEFT_SECRET_FILE and others, as for ranks).
"""

EPILOG = """\
examples:
  weft top                    the job that began last, again every second
  weft top --once             one look, for a script or a log
  weft top --once --json      the same for programs
  weft top --address node1:29500
                              a job elsewhere, whose WEFT_SECRET or WEFT_SECRET_FILE is set here
"""

_CLEAR = "\x1b[H\x1b[2J"
_SHORTEST_S = 0.2


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", nargs="?", metavar="JOB", help="the name of a job, such as job-9d52f392f5097cf8")
    parser.add_argument(
        "--address", type=values.address, metavar="HOST:PORT", help="MASTER_ADDR:MASTER_PORT of a job with a secret"
    )
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


def _check(arguments: argparse.Namespace) -> None:
    if arguments.job is not None and arguments.address is not None:
        raise UsageError("JOB names a job of this host, --address one elsewhere: give one of them")


def _run(arguments: argparse.Namespace) -> int:
    try:
        watch = Watch(_job(arguments.job) if arguments.address is None else RemoteJob(arguments.address))
        with _view(arguments) as show:
            while True:
                show(watch.job.name, *watch.look(arguments.interval), arguments.ranks)
                if arguments.once:
                    return 0
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


def _view(arguments: argparse.Namespace) -> contextlib.AbstractContextManager[View]:
    """The laboratory's view on a terminal, if it is installed."""
    if arguments.json:
        return contextlib.nullcontext(_print_json)
    if arguments.once or not sys.stdout.isatty():
        return contextlib.nullcontext(_print)
    found = entry_point("weft.views", "top")
    screen: Callable[[], contextlib.AbstractContextManager[View]] | None = None if found is None else found.load()
    return contextlib.nullcontext(_redraw) if screen is None else screen()


def _print_json(name: str, report: Mapping[str, Any], rates: Mapping[int, RankRates], _ranks_max: int) -> None:
    by_rank = {str(rank): dataclasses.asdict(of_rank) for rank, of_rank in rates.items()}
    print(json.dumps({"job": name, **report, "rates": by_rank}), flush=True)


def _print(name: str, report: Mapping[str, Any], rates: Mapping[int, RankRates], ranks_max: int) -> None:
    print(f"{name}: {text(report, rates, ranks_max=ranks_max)}", flush=True)


def _redraw(name: str, report: Mapping[str, Any], rates: Mapping[int, RankRates], ranks_max: int) -> None:
    print(_CLEAR, end="")
    _print(name, report, rates, ranks_max)


COMMAND = Command(
    name="top",
    description=DESCRIPTION,
    epilog=EPILOG,
    add_arguments=_add_arguments,
    check=_check,
    run=_run,
)
