"""The command `python -m benches.one_host`: all measurements, compared with the targets."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benches import plot, report
from benches.one_host import targets
from benches.one_host.settings import OneHostEffort, OneHostSetting, full, quick
from weft.processes.local_ranks import RanksError
from weft.quantities import show_bytes
from weft_lab.bench import launch, pipeline, rows
from weft_lab.bench.rows import BenchRow


def main() -> int:
    """Runs it."""
    arguments = _arguments()
    arguments.output.mkdir(parents=True, exist_ok=True)
    effort = quick() if arguments.quick else full()
    try:
        libraries = [row for setting in effort.libraries for row in _measure(setting, effort)]
        torch = _measure(effort.torch, effort)
        experiment = _experiment(effort)
    except RanksError as error:
        print(f"benches.one_host: {error}", file=sys.stderr)
        return 1
    found = [*libraries, *torch, *experiment]
    verdicts = [*targets.libraries(libraries), *targets.torch(torch), *targets.pipeline(experiment)]
    text = report.table(verdicts)
    print(text)
    (arguments.output / "table.txt").write_text(text + "\n")
    report.write(arguments.output / "verdicts.json", verdicts, found)
    rows.write(arguments.output / "rows.json", found)
    plot.draw(arguments.output / "verdicts.png", verdicts)
    pipeline.draw(arguments.output / "pipeline.png", experiment)
    print(f"written: {arguments.output}")
    return 0 if all(row.verified for row in found) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benches.one_host", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few sizes, short: a look, not a record")
    parser.add_argument("--output", type=Path, default=Path("build/one-host"), metavar="DIRECTORY")
    return parser.parse_args()


def _measure(setting: OneHostSetting, effort: OneHostEffort) -> list[BenchRow]:
    begin = time.monotonic()
    through = " through torch" if setting.through == "torch" else ""
    print(f"{setting.ranks} ranks{through}: ", end="", flush=True)

    def print_progress(same_size: Sequence[BenchRow]) -> None:
        wrong = "" if all(row.verified for row in same_size) else " WRONG RESULT"
        print(f"{show_bytes(same_size[0].bytes)}{wrong} ", end="", flush=True)

    with launch.shared_directory() as directory:
        found = launch.measure(setting.spec(effort, directory), print_progress)
    print(f"in {time.monotonic() - begin:.0f} s", flush=True)
    return found


def _experiment(effort: OneHostEffort) -> list[BenchRow]:
    begin = time.monotonic()
    print(f"pipeline experiment, {show_bytes(effort.pipeline_bytes)}: ", end="", flush=True)
    with launch.shared_directory() as directory:
        found = pipeline.measure(pipeline.spec(directory, size=effort.pipeline_bytes))
    print(f"in {time.monotonic() - begin:.0f} s", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
