"""Starts the measuring processes and collects their rows."""

from __future__ import annotations

import contextlib
import socket
import tempfile
from collections.abc import Callable, Iterator

from weft.bench import processes, rows
from weft.bench.board import Board
from weft.bench.processes import BenchError, Ranks
from weft.bench.rows import Row
from weft.bench.spec import Spec

__all__ = ["BenchError", "emulated_ports", "free_ports", "measure", "shared_directory"]

_EMULATED_FIRST_PORT = 29500


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
    seen = 0

    def pass_on() -> None:
        nonlocal seen
        found = rows.read_growing(spec.rows_path)
        for row in found[seen:]:
            on_row(row)
        seen = len(found)

    processes.run(_ranks(spec), pass_on)
    return rows.read_growing(spec.rows_path)


def _ranks(spec: Spec) -> Ranks:
    environment = {}
    if spec.through == "torch":  # torch's backends take no arguments
        environment = {"WEFT_TRANSPORT": spec.transport, "WEFT_POOL_BYTES": str(spec.pool_bytes)}
    return Ranks(
        program=["-m", "weft.bench.worker", str(spec.path)],
        ranks=spec.ranks,
        port=spec.ports[0],
        hosts=spec.hosts,
        gbps=spec.gbps,
        directory=spec.directory,
        environment=environment,
    )
