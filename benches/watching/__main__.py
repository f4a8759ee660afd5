"""The command `python -m benches.watching`: jobs with faults under `weft top`, and its cost."""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from benches import record
from benches.watching.job import FAULTS, Job
from benches.watching.watcher import Watcher, is_quiet, names

_OPERATION = "all_reduce of 256 KiB"
_NAMED_S_MAX = 2.0
_CORES_MAX = 0.005
_FAULT_S = 5.0
_COST_S = 20.0
_IDLE_PAUSE_S = 1000.0
_LINE_HOSTS = 8


@dataclass
class Named:
    """A fault, and how long after it `weft top` has named rank, host and operation."""

    fault: str
    ranks: int
    seconds: float | None
    text: str


@dataclass
class Cost:
    """Processor time of a rank, in cores, on average over the ranks."""

    job: str
    ranks: int
    alone: float
    watched: float


def main() -> int:
    """Runs it."""
    parser = argparse.ArgumentParser(prog="python -m benches.watching", description=__doc__)
    parser.add_argument("--ranks", type=int, default=64, metavar="P", help="how many (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="of each fault (default: %(default)s)")
    parser.add_argument("--output", type=Path, metavar="DIRECTORY", help="write rows, table and README.md")
    arguments = parser.parse_args()
    ranks, rounds = arguments.ranks, arguments.rounds
    named = [row for _ in range(rounds) for row in _named(ranks)]
    costs = [_cost(ranks, "waits for one rank", _IDLE_PAUSE_S), _cost(ranks, "a step each second", 1.0)]
    named += [_named_line() for _ in range(rounds)] if os.geteuid() == 0 else []
    text = _table(named, costs)
    print(text)
    if arguments.output:
        title = f"weft top with {ranks} ranks on {os.cpu_count()} cores, {datetime.now(UTC).date()}"
        record.write(arguments.output, title, [asdict(row) for row in (*named, *costs)], text)
    return 1 if "MISSED" in text else 0


def _named(ranks: int) -> Iterator[Named]:
    """Each fault once, in one job."""
    culprit = ranks // 2 + 1
    with Job(ranks, culprit, pause=0.02) as job, Watcher(job.directory) as watcher:
        for fault in FAULTS:
            if watcher.first(is_quiet) is None:
                raise SystemExit("the job does not run")
            time.sleep(random.uniform(0.0, 1.0))  # at any time between two looks
            began = job.begin(fault, _FAULT_S)
            found = watcher.first(lambda report: names(report, culprit, _OPERATION), _FAULT_S)
            job.resume()
            row = Named(fault, ranks, None, "") if found is None else _row(fault, ranks, found[0] - began, found[1])
            print(row, flush=True)
            yield row


def _row(fault: str, ranks: int, seconds: float, report: dict[str, dict[str, str]]) -> Named:
    return Named(fault, ranks, round(seconds, 3), report["verdict"]["text"])


def _named_line() -> Named:
    """A line that is slow from some moment on, on emulated hosts."""
    culprit = _LINE_HOSTS // 2 + 1
    command = ["-m", "weft.cli", "hosts", "--hosts", str(_LINE_HOSTS), "--gbps", "1", "--grace", "1", "--"]
    of_rank = [sys.executable, "-m", "benches.watching.line", str(culprit)]
    done = subprocess.run(
        [sys.executable, *command, *of_rank], capture_output=True, text=True, check=False, timeout=180
    )
    found = dict(line.partition("] ")[2].split(" ", 1) for line in done.stdout.splitlines() if "] " in line)
    slowed, (at, _, text) = found.get("slowed"), found.get("named", "never").partition(" ")
    if slowed is None or at == "never":
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
        return Named("slow line", _LINE_HOSTS, None, "")
    row = Named("slow line", _LINE_HOSTS, round(float(at) - float(slowed), 3), text)
    print(row, flush=True)
    return row


def _cost(ranks: int, what: str, pause: float) -> Cost:
    """A job alone, and the same job watched once a second."""
    with Job(ranks, 0, min(pause, 1.0)) as job:
        if pause > 1.0:
            job.begin("slow loader", pause)
        time.sleep(2.0)
        alone = _cores(job)
        with Watcher(job.directory):
            time.sleep(2.0)
            row = Cost(what, ranks, alone, _cores(job))
    print(row, flush=True)
    return row


def _cores(job: Job) -> float:
    before, began = job.processor_seconds(), time.monotonic()
    time.sleep(_COST_S)
    return (job.processor_seconds() - before) / (time.monotonic() - began) / job.ranks


def _table(named: list[Named], costs: list[Cost]) -> str:
    lines = []
    for fault in dict.fromkeys(row.fault for row in named):
        of_fault = [row for row in named if row.fault == fault]
        times = sorted(row.seconds for row in of_fault if row.seconds is not None)
        met = len(times) == len(of_fault) and times[-1] <= _NAMED_S_MAX
        shown = ", ".join(f"{seconds:.2f}" for seconds in times)
        lines.append(
            f"{'met   ' if met else 'MISSED'} {fault}, {of_fault[0].ranks} ranks: "
            f"named in {len(times)} of {len(of_fault)} cases, after {shown} s"
        )
    for cost in costs:
        verdict = "met   " if cost.watched - cost.alone <= _CORES_MAX else "MISSED"
        lines.append(
            f"{verdict} {cost.job}, {cost.ranks} ranks: {cost.alone:.3%} of a core for each rank alone, "
            f"{cost.watched:.3%} watched at 1 Hz"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
