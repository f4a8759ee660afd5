"""`python -m weft.bench.model`: measures, predicts, compares, and writes a table, JSON and a picture."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path

from weft.bench import launch, processes
from weft.bench.model import observed
from weft.bench.model.observed import Observed
from weft.bench.model.settings import SETTINGS, Setting
from weft.bench.sizes import parse_sizes
from weft.schedule import algorithms


def main() -> int:
    """Runs it."""
    arguments = _arguments()
    if arguments.observed:
        found = observed.load(arguments.observed)
    else:
        found = [_measure(setting, arguments) for setting in SETTINGS if setting.name in arguments.settings]
        observed.save(arguments.output / "observed.json", found)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m weft.bench.model", description=__doc__)
    names = [setting.name for setting in SETTINGS]
    parser.add_argument("--settings", type=lambda text: text.split(","), default=names, metavar="NAME,...")
    parser.add_argument("--sizes", type=parse_sizes, default=parse_sizes("4K:64M"), metavar="SIZES")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--cell-seconds", type=float, default=0.03, metavar="S", help="per algorithm, size and round")
    parser.add_argument("--calibration-seconds", type=float, default=2.0, metavar="S", help="per round")
    parser.add_argument("--output", type=Path, default=Path("build/validate-model"), metavar="DIRECTORY")
    parser.add_argument("--observed", type=Path, metavar="FILE", help="predict what was measured before")
    return parser.parse_args()


def _measure(setting: Setting, arguments: argparse.Namespace) -> Observed:
    """Runs the measuring processes of one setting."""
    begin = time.monotonic()
    print(f"{setting.name}: measuring", flush=True)
    with launch.shared_directory() as directory:
        spec, result = Path(directory, "spec.json"), Path(directory, "result.json")
        value = {
            "setting": dataclasses.asdict(setting),
            "algorithms": [a.name for a in algorithms("all-reduce")],
            "sizes": arguments.sizes,
            "rounds": arguments.rounds,
            "cell_s": arguments.cell_seconds,
            "calibration_s": arguments.calibration_seconds,
            "result": str(result),
        }
        spec.write_text(json.dumps(value))
        processes.run(
            processes.Ranks(
                program=["-m", "weft.bench.model.worker", str(spec)],
                ranks=setting.ranks,
                port=launch.free_ports(1)[0],
                hosts=setting.hosts,
                gbps=setting.gbps,
                directory=directory,
            )
        )
        found = Observed.of_value(json.loads(result.read_text()))
    print(f"{setting.name}: {len(found.cells)} cells in {time.monotonic() - begin:.0f} s", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
