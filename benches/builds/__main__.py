"""The command `python -m benches.builds`: comparison of two builds, the old one also as control.

Each build is a virtual environment of its own with weft and torch in it. Timings never fail: it
ends with status 0.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benches import record
from benches.builds import instructions, measuring, report, settings, stepping, verdict
from benches.builds.measuring import BuildRow
from benches.builds.settings import FULL, QUICK, BuildCell, BuildEffort
from weft.processes.local_ranks import RanksError
from weft.quantities import parse_sizes


def main() -> int:
    """Runs it."""
    arguments = _arguments()
    pythons = {"old": arguments.old, "new": arguments.new, "control": arguments.old}
    effort = QUICK if arguments.quick else FULL
    if arguments.sizes:
        effort = dataclasses.replace(effort, sizes=arguments.sizes)
    try:
        text = _counted(pythons)
        rows: list[BuildRow] = []
        if not arguments.instructions:
            rows, table = _compared(pythons, _chosen(effort, arguments), effort)
            text = f"{table}\n{text}"
    except RanksError as error:
        print(f"benches.builds: {error}", file=sys.stderr)
        return 1
    print(text)
    if arguments.output:
        title = f"A new build against the old one, {datetime.now(UTC).date()}"
        record.write(arguments.output, title, [row.to_value() for row in rows], text)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benches.builds", description=__doc__)
    parser.add_argument("--old", type=Path, required=True, metavar="PYTHON", help="python of the old build")
    parser.add_argument("--new", type=Path, required=True, metavar="PYTHON", help="python of the new build")
    parser.add_argument("--quick", action="store_true", help="few sizes, one launch: a look, not a record")
    parser.add_argument("--instructions", action="store_true", help="count instructions, and measure nothing")
    parser.add_argument("--sizes", type=parse_sizes, metavar="SIZES", help="other sizes, such as 4:64M")
    for name, known in (("transports", settings.TRANSPORTS), ("levels", settings.LEVELS)):
        parser.add_argument(f"--{name}", type=lambda text: text.split(","), default=list(known), metavar="NAME,...")
    parser.add_argument("--ranks", type=_numbers, default=list(settings.RANKS), metavar="N,...")
    parser.add_argument("--output", type=Path, metavar="DIRECTORY", help="write rows, table and README.md")
    arguments = parser.parse_args()
    # Not resolved: the target of a virtual environment's `python` does not know the environment.
    arguments.old, arguments.new = arguments.old.absolute(), arguments.new.absolute()
    return arguments


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _chosen(effort: BuildEffort, arguments: argparse.Namespace) -> list[BuildCell]:
    return [
        cell
        for cell in effort.cells()
        if cell.group.ranks in arguments.ranks
        and cell.group.transport in arguments.transports
        and cell.group.level in arguments.levels
    ]


def _counted(pythons: Mapping[str, Path]) -> str:
    print("counting instructions", flush=True)
    try:
        return report.instructions_table(instructions.count(pythons))
    except stepping.SteppingError as error:
        return f"instructions: not counted: {error}"


def _compared(
    pythons: Mapping[str, Path], cells: Sequence[BuildCell], effort: BuildEffort
) -> tuple[list[BuildRow], str]:
    """Measures all cells, and misses once more. Returns all rows, and the table."""
    rows = measuring.measure(pythons, cells, effort, _progress())
    verdicts = verdict.cells(rows)
    if doubtful := verdict.doubtful(verdicts):
        print(f"once more: {len(doubtful)} cells", flush=True)
        again = measuring.measure(pythons, doubtful, effort, _progress())
        verdicts = verdict.settled(verdicts, again)
        rows += again
    return rows, report.table(verdicts)


def _progress() -> measuring.Progress:
    begin = time.monotonic()
    return lambda text: print(f"{time.monotonic() - begin:4.0f} s  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
