"""The command `python -m benches.hosts`: tables between hosts and beside neighbours."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benches import record, report
from benches.hosts import targets
from benches.hosts.settings import TABLES, TableSetting, find
from benches.targets import TargetVerdict
from weft.diagnosis import findings as diagnosis
from weft.processes.local_ranks import RanksError
from weft_lab import console
from weft_lab.bench import launch, table
from weft_lab.bench.rows import BenchRow


def main() -> int:
    """Runs it."""
    arguments = _arguments()
    chosen = [find(name) for name in arguments.only or [one.name for one in TABLES]]
    missing = _missing()
    rows: list[BenchRow] = []
    verdicts: list[TargetVerdict] = []
    lines: list[str] = []
    for setting in chosen:
        if missing and setting.hosts > 1:
            lines.append(f"\n{setting.name}: left out, {missing}")
            print(lines[-1])
            continue
        try:
            found = _measure(setting.quick() if arguments.quick else setting, lines)
        except RanksError as error:
            print(f"benches.hosts: {setting.name}: {error}", file=sys.stderr)
            return 1
        rows += found
        verdicts += targets.verdicts(setting.name, found)
    summary = report.table(verdicts)
    print(summary)
    text = "\n".join([*lines, summary]).lstrip()
    record.write(
        arguments.output,
        f"Targets between hosts, {datetime.now(UTC).date()}",
        [dataclasses.asdict(row) for row in rows],
        text,
    )
    return 0 if all(row.verified for row in rows) else 1


def _arguments() -> argparse.Namespace:
    names = [one.name for one in TABLES]
    parser = argparse.ArgumentParser(prog="python -m benches.hosts", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few sizes, short: a look, not a record")
    parser.add_argument("--only", type=_names, metavar="TABLE,...", help=f"of {', '.join(names)}")
    parser.add_argument("--output", type=Path, default=Path("build/hosts"), metavar="DIRECTORY")
    return parser.parse_args()


def _names(text: str) -> list[str]:
    names = text.split(",")
    known = [one.name for one in TABLES]
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(known)}")
    return names


def _missing() -> str | None:
    """Why hosts cannot be emulated here; None if they can."""
    found = diagnosis.emulated_hosts()
    return None if found.good else f"emulated hosts {found.text}"


def _measure(setting: TableSetting, lines: list[str]) -> list[BenchRow]:
    """Returns the rows of one table, which are printed and added to the lines of the record."""
    begin = time.monotonic()

    def print_line(text: str) -> None:
        lines.append(text)
        print(text, flush=True)

    def print_rows(same_size: Sequence[BenchRow]) -> None:
        print_line(console.rendered(table.row_table(spec, same_size)))

    with launch.shared_directory() as directory:
        spec = setting.spec(directory)
        print_line(f"\n{setting.name}:\n{table.title(spec)}\n{console.rendered(table.row_table(spec))}")
        found = launch.measure(spec, print_rows)
    print_line(f"in {time.monotonic() - begin:.0f} s")
    return found


if __name__ == "__main__":
    sys.exit(main())
