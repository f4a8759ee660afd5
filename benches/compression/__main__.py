"""The command `python -m benches.compression`: each mode's time to a loss, and a verdict."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from benches import record
from benches.compression import report
from benches.compression.rows import CompressionRow
from benches.compression.settings import CONTENDERS, FULL, GBPS, HOSTS, QUICK, CompressionEffort
from weft.diagnosis import findings as diagnosis
from weft.processes.local_ranks import RanksError
from weft_lab.bench import launch, processes


def main() -> int:
    """Runs it."""
    arguments = _arguments()
    effort = QUICK if arguments.quick else FULL
    if arguments.only is not None:
        effort = dataclasses.replace(effort, contenders=arguments.only)
    found = diagnosis.emulated_hosts()
    if not found.good:
        print(f"benches.compression: emulated hosts {found.text}", file=sys.stderr)
        return 1
    rows: list[CompressionRow] = []
    try:
        for gbps in arguments.gbps:
            print(f"{HOSTS} hosts at {gbps:g} Gbit/s", flush=True)
            rows += _measured(gbps, effort)
    except RanksError as error:
        print(f"benches.compression: {error}", file=sys.stderr)
        return 1
    text = report.table(rows, effort.loss)
    print(text)
    if arguments.output:
        title = f"Compression: time to a loss, {datetime.now(UTC).date()}"
        record.write(arguments.output, title, [row.to_value() for row in rows], text)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benches.compression", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few steps of some modes: a look, not a record")
    parser.add_argument("--gbps", type=_rates, default=GBPS, metavar="G,...", help="line rates (default: 0.1,1)")
    parser.add_argument("--only", type=_contenders, metavar="NAME;...", help=f"of {'; '.join(CONTENDERS)}")
    parser.add_argument("--output", type=Path, metavar="DIRECTORY", help="write rows, table and README.md")
    return parser.parse_args()


def _rates(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


def _contenders(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(";"))
    for name in names:
        if name not in CONTENDERS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {'; '.join(CONTENDERS)}")
        if CONTENDERS[name].reference not in names:
            raise argparse.ArgumentTypeError(f"{name!r} is compared with {CONTENDERS[name].reference!r}: name it too")
    return names


def _measured(gbps: float, effort: CompressionEffort) -> list[CompressionRow]:
    """All contenders at one rate."""
    with launch.shared_directory() as directory:
        spec, rows = Path(directory, "spec.json"), Path(directory, "rows.jsonl")
        spec.write_text(json.dumps({"gbps": gbps, "rows": str(rows), "effort": dataclasses.asdict(effort)}))
        processes.run(
            processes.RankProcesses(
                program=["-m", "benches.compression.rank", str(spec)],
                ranks=HOSTS,
                port=launch.emulated_ports(1)[0],
                hosts=HOSTS,
                gbps=gbps,
                shared=[directory],
                environment=launch.QUIET_TORCH,
            )
        )
        return [CompressionRow(**json.loads(line)) for line in rows.read_text().splitlines()]


if __name__ == "__main__":
    sys.exit(main())
