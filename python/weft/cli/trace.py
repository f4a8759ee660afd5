"""The command `weft trace`: flight records of all ranks, in words and as a picture."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections import defaultdict
from collections.abc import Sized
from pathlib import Path

from weft import config
from weft.cli import values
from weft.cli.command import Command
from weft.errors import ArgumentError
from weft.output import files
from weft.tracing import Job, TraceFinding, findings, jobs, read
from weft.tracing.analyzer import write_pickles
from weft.tracing.findings import show_ns, show_ranks
from weft.tracing.perfetto import trace
from weft.tracing.record import newest_job, record_files

DESCRIPTION = """\
Reads the flight records that the processes of a job wrote (at a failure of a group, or at WEFT_FLIGHT_SIGNAL), puts
them on one clock, and says which ranks waited for which others, and why: ranks that called something else, that are
missing or that came late, and collectives that took longer than others of the same kind. With --output, writes a trace
that ui.perfetto.dev shows. If there are records of several jobs, the job that wrote last is used; without PATH, the
last job of this user in WEFT_FLIGHT_DIR, which is named.
"""

EPILOG = """\
examples:
  weft trace                                  your last job with records in WEFT_FLIGHT_DIR
  weft trace /tmp/weft-flight-1f3a5c7e9b2d4f60/job-9d52f392f5097cf8
  weft trace host-a/rank0.json host-b/rank1.json --json
  weft trace records/ --output trace.json     then open it in https://ui.perfetto.dev
  weft trace records/ --torch pickles/ && torchfrtrace pickles/
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="PATH", help="files, or directories of them (default: WEFT_FLIGHT_DIR)"
    )
    parser.add_argument(
        "--most",
        type=values.at_least(0),
        default=10,
        metavar="N",
        help="show at most N late ranks and N slow collectives (default: %(default)s)",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=values.output_file(values.DATA),
        metavar="FILE",
        help="write a trace for ui.perfetto.dev (.json)",
    )
    parser.add_argument(
        "--torch",
        type=values.directory,
        metavar="DIR",
        help="write the input of PyTorch's analyzer torchfrtrace: a pickle per rank",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _run(arguments: argparse.Namespace) -> int:
    try:
        job = _job(arguments.paths)
        found = findings(job, arguments.most)
        if arguments.output is not None:
            files.write(arguments.output, json.dumps(trace(job)))
        if arguments.torch is not None:
            write_pickles([Path(record.path) for record in job.records.values()], arguments.torch)
    except (ArgumentError, OSError) as error:
        print(f"weft trace: {error}", file=sys.stderr)
        return 2
    print(json.dumps(_as_json(job, found), indent=1) if arguments.json else "\n".join(_in_words(job, found)))
    return 0


def _job(paths: list[Path]) -> Job:
    """The last job of these paths, or of this user."""
    earlier = 0
    if not paths:
        base = config.flight_directory(config.load())
        if base is None:
            raise ArgumentError("WEFT_FLIGHT_DIR is none: name files, or directories of them")
        paths, earlier = newest_job(base)
        if not paths:
            raise ArgumentError(f"no flight records of this user in {base}: name files, or directories of them")
        print(f"weft trace: the last records of this user: {', '.join(map(str, paths))}", file=sys.stderr)
    found = record_files(paths)
    if not found:
        raise ArgumentError(f"no flight records in {', '.join(map(str, paths))}: name files, or directories of them")
    *others, job = jobs([read(file) for file in found])
    earlier += len(others)
    if earlier:
        print(f"weft trace: records of {earlier} earlier jobs are left out; name their files", file=sys.stderr)
    return job


def _in_words(job: Job, found: list[TraceFinding]) -> list[str]:
    lines = [f"{_count(job.records, 'rank')}, {_count(job.groups, 'group')}, {show_ns(job.end - job.begin)} on record"]
    lines += [f"  {show_ranks([rank])} on {record.host}: {_summary(job, rank)}" for rank, record in job.records.items()]
    for clock in list(job.alignment.clocks.values())[1:]:
        known = f"wrong by {show_ns(clock.error_ns)} at most" if clock.error_ns is not None else "by the system's clock"
        lines.append(f"  the clock of {clock.host} was moved by {show_ns(clock.offset_ns)}, {known}")
    lines += [f"{show_ranks(ranks)} failed: {error}" for error, ranks in _failures(job).items()]
    lines += ["", *(finding.text for finding in found)]
    return lines if found else [*lines, "No rank has waited for another one, as far as is recorded."]


def _summary(job: Job, rank: int) -> str:
    record = job.records[rank]
    ended = sum(operation.ended is not None for operation in record.operations)
    how_many = "all" if ended == len(record.operations) else f"{ended} of them"
    return f"{_count(record.operations, 'operation')}, {how_many} ended; written at a {record.occasion}"


def _count(things: Sized, name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


def _failures(job: Job) -> dict[str, list[int]]:
    """The errors of groups, and the ranks that reported them."""
    ranks: defaultdict[str, list[int]] = defaultdict(list)
    for rank, record in job.records.items():
        for failure in record.failures:
            ranks[failure.error].append(rank)
    return ranks


def _as_json(job: Job, found: list[TraceFinding]) -> dict[str, object]:
    return {
        "ranks": [
            {
                "rank": rank,
                "host": record.host,
                "pid": record.pid,
                "path": record.path,
                "occasion": record.occasion,
                "operations": len(record.operations),
                "failures": [failure.error for failure in record.failures],
            }
            for rank, record in job.records.items()
        ],
        "missing": job.missing,
        "clocks": [dataclasses.asdict(clock) for clock in job.alignment.clocks.values()],
        "findings": [dataclasses.asdict(finding) for finding in found],
    }


COMMAND = Command(
    name="trace",
    description=DESCRIPTION,
    epilog=EPILOG,
    add_arguments=_add_arguments,
    run=_run,
)
