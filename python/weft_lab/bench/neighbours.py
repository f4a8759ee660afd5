"""Busy neighbours: processes of pure arithmetic beside the measured ones (`weft bench --busy`)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

from weft.processes import local_ranks
from weft.processes.local_ranks import die_with_parent

_FACTOR = 1664525
_SUMMAND = 1013904223


class BusyNeighbours:
    """Processes that compute while they are allowed to, pinned to no core."""

    def __init__(self, count: int) -> None:
        """Starts them; each stops itself once it is ready."""
        command = [sys.executable, "-m", "weft_lab.bench.neighbours"]
        self._processes = [subprocess.Popen(command) for _ in range(count)]
        for process in self._processes:
            os.waitpid(process.pid, os.WUNTRACED)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Makes them compute during the block."""
        self._signal(signal.SIGCONT)
        try:
            yield
        finally:
            self._signal(signal.SIGSTOP)

    def close(self) -> None:
        """Ends them."""
        self._signal(signal.SIGKILL)
        local_ranks.end(self._processes)

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes:
            process.send_signal(number)


@contextlib.contextmanager
def started(count: int) -> Iterator[BusyNeighbours]:
    """This many neighbours, ended with the block."""
    neighbours = BusyNeighbours(count)
    try:
        yield neighbours
    finally:
        neighbours.close()


def _compute() -> None:
    die_with_parent()
    os.kill(os.getpid(), signal.SIGSTOP)
    number = 1
    while True:
        number = (number * _FACTOR + _SUMMAND) % 2**32


if __name__ == "__main__":
    _compute()
