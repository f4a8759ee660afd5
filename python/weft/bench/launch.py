"""Starts the measuring processes and collects their rows."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

from weft import config
from weft.bench import rows
from weft.bench.board import Board
from weft.bench.rows import Row
from weft.bench.spec import Spec

_POLL_S = 0.1
_END_S = 5.0
_EMULATED_FIRST_PORT = 29500


class BenchError(RuntimeError):
    """The measurement could not be carried out."""


def free_ports(count: int) -> list[int]:
    """Ports of this host that nobody listens at."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [s.getsockname()[1] for s in sockets]


def emulated_ports(count: int) -> list[int]:
    """Ports of an emulated host, where nobody else is."""
    return [_EMULATED_FIRST_PORT + index for index in range(count)]


@contextlib.contextmanager
def shared_directory() -> Iterator[str]:
    """A directory in memory, which emulated hosts see too."""
    with tempfile.TemporaryDirectory(prefix="weft-bench-", dir="/dev/shm") as directory:
        yield directory


def measure(spec: Spec, on_row: Callable[[Row], None]) -> list[Row]:
    """Runs the measuring processes, and passes on every row as soon as it is there."""
    spec.save()
    Board.create(spec.board_path, spec.ranks)
    processes = [subprocess.Popen(command, env=env) for command, env in _commands(spec)]
    seen = 0
    try:
        while any(process.poll() is None for process in processes):
            seen = _pass_on(spec, seen, on_row)
            if any(process.poll() for process in processes):
                break
            time.sleep(_POLL_S)
        _pass_on(spec, seen, on_row)
    finally:
        _end(processes)
    failed = [process.returncode for process in processes if process.returncode != 0]
    if failed:
        raise BenchError(f"a measuring process ended with status {failed[0]}; its own message is above")
    return rows.read_growing(spec.rows_path)


def _pass_on(spec: Spec, seen: int, on_row: Callable[[Row], None]) -> int:
    found = rows.read_growing(spec.rows_path)
    for row in found[seen:]:
        on_row(row)
    return len(found)


def _commands(spec: Spec) -> list[tuple[list[str], dict[str, str]]]:
    """The command lines to start, each with its environment: one per rank, or one launcher of emulated hosts."""
    worker = [sys.executable, "-m", "weft.bench.worker", str(spec.path)]
    common = {**config.environment(), "OMP_NUM_THREADS": "1"}
    if spec.through == "torch":  # torch's backends take no arguments
        common |= {"WEFT_TRANSPORT": spec.transport, "WEFT_POOL_BYTES": str(spec.pool_bytes)}
    if spec.hosts > 1:
        options = ["--hosts", str(spec.hosts), "--ranks-per-host", str(spec.ranks // spec.hosts)]
        options += ["--share", spec.directory, "--grace", "1"]
        if spec.gbps is not None:
            options += ["--gbps", str(spec.gbps)]
        return [([sys.executable, "-m", "weft.cli", "hosts", *options, "--", *worker], common)]
    place = {"WORLD_SIZE": str(spec.ranks), "LOCAL_WORLD_SIZE": str(spec.ranks), "MASTER_ADDR": "127.0.0.1"}
    place["MASTER_PORT"] = str(spec.ports[0])
    return [(worker, {**common, **place, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(spec.ranks)]


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    """Ends what still runs: asks first, because a launcher of emulated hosts takes its hosts down."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + _END_S
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
