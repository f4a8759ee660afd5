"""The command `python -m benches.servers`: a slow worker at each staleness, and a killed server."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benches import record
from benches.servers import quota, report
from benches.servers.cluster import Job, Process, free_address, server, trained
from benches.servers.rows import KilledRow, LineRow, TrainedWorker, UnequalRow
from benches.servers.settings import FULL, LINE_GBPS, LINE_WORKERS, QUICK, RATE, SHARES, STALENESSES, ServerEffort
from weft.cli import values
from weft.processes.local_ranks import RanksError
from weft_lab.bench import launch, processes
from weft_lab.emulation import EmulationError, require_root

_Row = UnequalRow | KilledRow | LineRow
_PARTS = ("unequal", "killed", "lines")


def main() -> int:
    """Runs it."""
    arguments = _arguments()
    effort = QUICK if arguments.quick else FULL
    rows: list[_Row] = []
    texts = []
    try:
        for part in arguments.only:
            found, text = _measured(part, effort, arguments.output)
            rows += found
            texts.append(text)
    except RanksError as error:
        print(f"benches.servers: {error}", file=sys.stderr)
        return 1
    text = "\n\n".join(texts)
    print(text)
    if arguments.output:
        title = f"Parameter servers: a slow worker, a killed server, lines, {datetime.now(UTC).date()}"
        record.write(arguments.output, title, list(map(dataclasses.asdict, rows)), text)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benches.servers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short block of each: a look, not a record")
    parser.add_argument(
        "--only", type=values.choices(_PARTS), default=_PARTS, metavar="PART,...", help=f"of {', '.join(_PARTS)}"
    )
    parser.add_argument("--output", type=Path, metavar="DIRECTORY", help="write rows, table, picture and README.md")
    return parser.parse_args()


def _measured(part: str, effort: ServerEffort, output: Path | None) -> tuple[Sequence[_Row], str]:
    """Returns a part's rows, and their report."""
    match part:
        case "unequal":
            if missing := quota.missing():
                return [], f"a slow worker: left out, {missing}"
            unequal = list(_unequal(effort))
            if output:
                report.draw(output / "unequal.png", unequal)
            return unequal, report.of_staleness(unequal)
        case "killed":
            killed = list(_killed(effort))
            return killed, report.of_killed(killed)
    try:
        require_root()
    except EmulationError as error:
        return [], f"lines: left out, {error}"
    lines = _lines(effort)
    return lines, report.of_lines(lines)


def _unequal(effort: ServerEffort) -> Iterator[UnequalRow]:
    """Trains at each staleness in turn, with one worker whose share of a processor is smaller."""
    for number in range(effort.rounds):
        for staleness in STALENESSES:
            # Without rounds there are as many more updates as there are workers.
            rate = RATE if staleness == 0 else RATE / len(SHARES)
            job = Job(workers=len(SHARES), staleness=staleness, rate=rate, seconds=effort.seconds)
            address = free_address()
            with contextlib.ExitStack() as stack, server(address):

                def limit(workers: Sequence[Process], stack: contextlib.ExitStack = stack) -> None:
                    for one, (worker, share) in enumerate(zip(workers, SHARES, strict=True)):
                        stack.enter_context(quota.limited(f"worker{one}", worker.pid, share))

                row = UnequalRow(staleness, effort.seconds, trained(address, job, limit))
            print(f"round {number + 1}, staleness {staleness}: {row.rate:.0f} samples/s", flush=True)
            yield row


def _killed(effort: ServerEffort) -> Iterator[KilledRow]:
    """Trains with a server that is killed at a random moment and started again."""
    job = Job(workers=2, staleness=0, rate=RATE, steps=effort.steps)
    address = free_address()
    with server(address):
        undisturbed = trained(address, job, lambda _: None)
    length = min(worker.steps[-1][0] for worker in undisturbed)
    for _ in range(effort.kills):
        after = random.SystemRandom().uniform(0.2, 0.8) * length
        row = _with_kill(job, after, undisturbed)
        print(f"killed after {row.killed_s:.1f} s: resumed {row.resumed_s:.2f} s later", flush=True)
        yield row


def _with_kill(job: Job, after: float, undisturbed: Sequence[TrainedWorker]) -> KilledRow:
    address = free_address()
    killed_s = 0.0
    with contextlib.ExitStack() as stack, tempfile.TemporaryDirectory() as directory:
        shard = Path(directory, "shard")
        first = stack.enter_context(server(address, shard))

        def strike(_: Sequence[Process]) -> None:
            nonlocal killed_s
            began = time.monotonic()
            time.sleep(after)
            first.kill()
            killed_s = time.monotonic() - began
            first.wait()
            stack.enter_context(server(address, shard))

        workers = trained(address, job, strike)
    return KilledRow.of(killed_s, workers, undisturbed)


def _lines(effort: ServerEffort) -> list[LineRow]:
    """Steps on emulated hosts: workers, and a server apart."""
    with launch.shared_directory() as directory:
        path = Path(directory, "rows.json")
        spec = {"sizes": effort.sizes, "rounds": effort.rounds, "calls": effort.calls, "path": str(path)}
        ranks = processes.RankProcesses(
            program=["-m", "benches.servers.line_rank", json.dumps(spec)],
            ranks=LINE_WORKERS + 1,
            port=launch.emulated_ports(1)[0],
            hosts=LINE_WORKERS + 1,
            gbps=LINE_GBPS,
            shared=[directory],
            environment=launch.QUIET_TORCH,
        )
        processes.run(ranks)
        return [LineRow(**row) for row in json.loads(path.read_text())]


if __name__ == "__main__":
    sys.exit(main())
