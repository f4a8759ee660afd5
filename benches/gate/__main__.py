"""The command `python -m benches.gate`: training over weft and Gloo in turn, with one table."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benches import record
from benches.gate import report
from benches.gate.rows import CONTENDERS, GateRow, PairedBlock
from benches.gate.settings import FULL, QUICK, SETTINGS, GateEffort, GateSetting, GateTask, tasks
from weft.diagnosis import findings as diagnosis
from weft.processes.local_ranks import RanksError
from weft.processes.ports import free_ports
from weft_lab.bench import launch, processes, worker_groups
from weft_lab.bench.worker_groups import WorkerGroup

_GLANCES = 2
"""Blocks of one step, by which the number of steps of a block is chosen."""


def main() -> int:
    """Runs it."""
    arguments = _arguments()
    effort = QUICK if arguments.quick else FULL
    missing = _missing()
    left_out = [f"{setting.name}: {missing}" for setting in SETTINGS if missing and setting.hosts > 1]
    rows: list[GateRow] = []
    try:
        for setting in SETTINGS:
            if setting.hosts == 1 or not missing:
                rows += _measure(setting, effort)
    except RanksError as error:
        print(f"benches.gate: {error}", file=sys.stderr)
        return 1
    text = report.table(rows, left_out)
    print(text)
    values = [row.to_value() for row in rows]
    if arguments.json:
        record.write_rows(arguments.json, values)
    if arguments.output:
        title = f"Training steps over weft and over Gloo, {datetime.now(UTC).date()}"
        record.write(arguments.output, title, values, text)
    return 0 if all(row.agrees for row in rows) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benches.gate", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few blocks: a look, not a record")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows")
    parser.add_argument("--output", type=Path, metavar="DIRECTORY", help="write rows, table and README.md")
    return parser.parse_args()


def _missing() -> str | None:
    """Why hosts cannot be emulated here; None if they can."""
    found = diagnosis.emulated_hosts()
    return None if found.good else f"emulated hosts {found.text}"


def _measure(setting: GateSetting, effort: GateEffort) -> list[GateRow]:
    rows = []
    print(f"{setting.name}, {setting.ranks} ranks: starting", flush=True)
    with _started(setting) as group:
        for task in tasks(setting, effort):
            begin = time.monotonic()
            row = _trained(group, setting, effort, task)
            rows.append(row)
            took = f"{len(row.rounds)} pairs of blocks in {time.monotonic() - begin:.0f} s"
            print(f"  {task.name}: weft / Gloo {row.ratio:.3f}, {took}", flush=True)
    return rows


@contextlib.contextmanager
def _started(setting: GateSetting) -> Iterator[WorkerGroup]:
    """The ranks of a setting, ready to train. They end with the block, however it ends."""
    with launch.shared_directory() as directory:
        spec, socket = Path(directory, "spec.json"), Path(directory, "coordinator")
        port = (free_ports(1) if setting.hosts == 1 else launch.emulated_ports(1))[0]
        spec.write_text(json.dumps({"ranks": setting.ranks, "port": port, "socket": str(socket)}))
        ranks = processes.RankProcesses(
            program=["-m", "benches.gate.worker", str(spec)],
            ranks=setting.ranks,
            port=port,
            hosts=setting.hosts,
            gbps=setting.gbps,
            shared=[directory],
            environment=launch.QUIET_TORCH,
        )
        with worker_groups.meet(socket, {"gate": processes.commands(ranks)}, setting.ranks) as started:
            yield started[0]


def _trained(group: WorkerGroup, setting: GateSetting, effort: GateEffort, task: GateTask) -> GateRow:
    """Trains one network, block by block, weft and Gloo in turn, with alternating first."""
    begun = group.ask(setting.ranks, {"do": "begin", "task": dataclasses.asdict(task)})
    glances = [_block(group, setting, contender, 1) for contender in ("weft", "gloo") * _GLANCES]
    step_s = statistics.median(glance.step_ms for glance in glances) / 1e3
    steps = max(1, round(effort.block_seconds / step_s))
    deadline = time.monotonic() + effort.seconds
    rounds: list[dict[str, PairedBlock]] = []
    while len(rounds) < effort.rounds_min or time.monotonic() < deadline:
        order = CONTENDERS if len(rounds) % 2 == 0 else ("gloo", "weft", "compute")
        rounds.append({contender: _block(group, setting, contender, steps) for contender in order})
    return GateRow(
        setting=setting.name,
        ranks=setting.ranks,
        hosts=setting.hosts,
        gbps=setting.gbps,
        network=task.network,
        way=task.way,
        parameters=begun[0]["parameters"],
        agrees=all(answer["agrees"] for answer in begun),
        steps=steps,
        rounds=rounds,
    )


def _block(group: WorkerGroup, setting: GateSetting, contender: str, steps: int) -> PairedBlock:
    answers: list[Any] = group.ask(setting.ranks, {"do": "block", "contender": contender, "steps": steps})
    return PairedBlock.of(answers, steps)


if __name__ == "__main__":
    sys.exit(main())
