"""The command `python -m benches.model`: measurement, prediction, comparison and report."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path

from benches.model import compare, observed, plot, report
from benches.model.observed import Observed
from benches.model.settings import SETTINGS, ModelSetting
from weft import _weft
from weft.processes.ports import free_ports
from weft.quantities import parse_sizes
from weft_lab.bench import launch, processes


def main() -> int:
    """Runs it."""
    arguments = _arguments()
    arguments.output.mkdir(parents=True, exist_ok=True)
    if arguments.observed:
        found = observed.load(arguments.observed)
    else:
        found = [_measure(setting, arguments) for setting in SETTINGS if setting.name in arguments.settings]
        observed.save(arguments.output / "observed.json", found)
    compared = [compare.compare(one) for one in found]
    text = report.table(compared)
    print(text)
    (arguments.output / "table.txt").write_text(text + "\n")
    report.write(arguments.output / "cells.json", compared)
    plot.draw(arguments.output / "cells.png", compared)
    print(f"written: {arguments.output}")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benches.model", description=__doc__)
    names = [setting.name for setting in SETTINGS]
    parser.add_argument("--settings", type=lambda text: text.split(","), default=names, metavar="NAME,...")
    parser.add_argument("--sizes", type=parse_sizes, default=parse_sizes("4K:64M"), metavar="SIZES")
    parser.add_argument("--quick", action="store_true", help="up to 1M, one round: a look, not a record")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--cell-seconds", type=float, default=0.015, metavar="S", help="per measured call and round")
    parser.add_argument("--output", type=Path, default=Path("build/validate-model"), metavar="DIRECTORY")
    parser.add_argument("--observed", type=Path, metavar="FILE", help="predict earlier measurements")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.sizes, arguments.rounds = [size for size in arguments.sizes if size <= 1 << 20], 1
    return arguments


def _family(setting: ModelSetting) -> list[str]:
    """Every all-reduce that can run there."""
    ranks_per_host = [setting.ranks // setting.hosts] * setting.hosts
    names: list[str] = json.loads(
        _weft.family(json.dumps({"collective": "all-reduce", "ranks_per_host": ranks_per_host}))
    )
    return names


def _measure(setting: ModelSetting, arguments: argparse.Namespace) -> Observed:
    """Runs the measuring processes of one setting."""
    begin = time.monotonic()
    print(f"{setting.name}: measuring", flush=True)
    with launch.shared_directory() as directory:
        spec, result = Path(directory, "spec.json"), Path(directory, "result.json")
        value = {
            "setting": dataclasses.asdict(setting),
            "algorithms": _family(setting),
            "sizes": arguments.sizes,
            "rounds": arguments.rounds,
            "cell_s": arguments.cell_seconds,
            "result": str(result),
        }
        spec.write_text(json.dumps(value))
        processes.run(
            processes.RankProcesses(
                program=["-m", "benches.model.worker", str(spec)],
                ranks=setting.ranks,
                port=free_ports(1)[0],
                hosts=setting.hosts,
                gbps=setting.gbps,
                shared=[directory],
            )
        )
        found = Observed.of_value(json.loads(result.read_text()))
    print(f"{setting.name}: {len(found.cells)} cells in {time.monotonic() - begin:.0f} s", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
