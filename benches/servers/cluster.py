"""A server and workers, as processes of this host."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benches.servers.rows import TrainedWorker
from weft.processes.ports import free_ports
from weft_lab.bench import launch

__all__ = ["Job", "free_address", "server", "trained"]

Process = subprocess.Popen[str]


@dataclasses.dataclass(frozen=True)
class Job:
    """The work of workers."""

    workers: int
    staleness: int | None
    rate: float
    """The learning rate."""
    seconds: float = 600.0
    steps: int = 1 << 30


def free_address() -> str:
    """For a server."""
    return f"127.0.0.1:{free_ports(1)[0]}"


@contextlib.contextmanager
def server(address: str, directory: Path | None = None) -> Iterator[Process]:
    """A server that serves. It ends with the block."""
    kept = [] if directory is None else ["--directory", str(directory)]
    with _process("-m", "weft.cli", "server", "--listen", address, *kept) as process:
        _line(process, "weft server: serving")
        yield process


def trained(address: str, job: Job, begun: Callable[[Sequence[Process]], None]) -> list[TrainedWorker]:
    """Trains. `begun` is called when all workers are there, and then they start."""
    with contextlib.ExitStack() as stack:
        workers = []
        for number in range(job.workers):
            spec = json.dumps({**dataclasses.asdict(job), "server": address, "number": number})
            workers.append(stack.enter_context(_process("-m", "benches.servers.worker", spec)))
        for worker in workers:
            _line(worker, "ready")
        began = time.monotonic()
        for worker in workers:
            _say(worker, "go")
        begun(workers)
        return [_result(_line(worker, "{"), began) for worker in workers]


def _result(line: str, began: float) -> TrainedWorker:
    value = json.loads(line)
    steps = [(at - began, loss) for at, loss in value["steps"]]
    return TrainedWorker(value["samples"], steps, value["staleness"])


@contextlib.contextmanager
def _process(*words: str) -> Iterator[Process]:
    with subprocess.Popen(
        [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _say(process: Process, line: str) -> None:
    assert process.stdin is not None
    print(line, file=process.stdin, flush=True)


def _line(process: Process, begins: str) -> str:
    """Returns the next line, which must begin with `begins`."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith(begins):
        raise launch.BenchError(f"a process of the benchmark ended early: {line.strip() or 'see above'}")
    return line
