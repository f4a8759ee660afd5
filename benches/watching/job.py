"""A job of many ranks on this host, forked from one interpreter, with faults on request."""

from __future__ import annotations

import mmap
import os
import signal
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import weft
from weft.processes.local_ranks import die_with_parent
from weft.processes.ports import free_ports

__all__ = ["FAULTS", "Job"]

_ELEMENTS = 1 << 16
_LAYOUT = struct.Struct("ddd")
_TIMEOUT_S = 300.0
_SCHEDULED = 2
"""Part of the number of a process's clock, as `clock_getcpuclockid` makes it."""


class Job:
    """Ranks that load data, which takes `pause` seconds, and sum arrays of 256 KiB, without end."""

    def __init__(self, ranks: int, culprit: int, pause: float) -> None:
        self.ranks, self.culprit = ranks, culprit
        # What the culprit does at its next step, for how long, and since when.
        self._shared = mmap.mmap(-1, mmap.PAGESIZE)
        self._write(-1, 0.0, 0.0)
        self._records = tempfile.TemporaryDirectory()
        self.directory = Path(self._records.name)
        port = free_ports(1)[0]
        self.pids = [self._fork(rank, port, pause) for rank in range(ranks)]

    def begin(self, fault: str, seconds: float) -> float:
        """Begins a fault, and returns when it began, by the monotonic clock."""
        if fault == "stopped":
            os.kill(self.pids[self.culprit], signal.SIGSTOP)
            return time.monotonic()
        self._write(list(FAULTS).index(fault), seconds, 0.0)
        while not (since := self._read()[2]):
            time.sleep(0.001)
        return since

    def resume(self) -> None:
        """Continues a culprit that was stopped; other faults end by themselves."""
        os.kill(self.pids[self.culprit], signal.SIGCONT)

    def __enter__(self) -> Job:
        """Waits until all ranks listen for programs that watch."""
        try:
            while sum(1 for _ in self.directory.glob("*/*/rank*.sock")) < self.ranks:
                time.sleep(0.1)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Kills the ranks."""
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
        for pid in self.pids:
            os.waitpid(pid, 0)
        self._records.cleanup()

    def processor_seconds(self) -> float:
        """The processor time that all ranks have taken."""
        return sum(time.clock_gettime(~pid << 3 | _SCHEDULED) for pid in self.pids)

    def _fork(self, rank: int, port: int, pause: float) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            die_with_parent()
            options = {"timeout": _TIMEOUT_S, "flight_dir": self.directory}
            self._train(weft.init(rank, self.ranks, address=f"127.0.0.1:{port}", **options), pause)
        finally:
            os._exit(1)

    def _train(self, group: weft.Group, pause: float) -> None:
        gradients = np.ones(_ELEMENTS, np.float32)
        # A call that the others do not make breaks its group only.
        other = group.new_group(range(group.size), name="other")
        while True:
            time.sleep(pause)
            fault, seconds, since = self._read()
            if group.rank == self.culprit and fault >= 0 and not since:
                self._write(fault, seconds, time.monotonic())
                list(FAULTS.values())[int(fault)](other, seconds)
            group.all_reduce(gradients)

    def _write(self, fault: float, seconds: float, since: float) -> None:
        self._shared[: _LAYOUT.size] = _LAYOUT.pack(fault, seconds, since)

    def _read(self) -> tuple[float, float, float]:
        fault, seconds, since = _LAYOUT.unpack(self._shared[: _LAYOUT.size])
        return fault, seconds, since


def _hold_interpreter_lock(_other: weft.Group | None, seconds: float) -> None:
    """Computes in one call of the interpreter's, so that no other thread of Python's runs."""
    size, took = 10_000, 0.0
    while took < seconds:
        started = time.monotonic()
        pow(3, size)
        took, size = time.monotonic() - started, size * 2


def _load_slowly(_other: weft.Group | None, seconds: float) -> None:
    time.sleep(seconds)


def _make_other_call(other: weft.Group | None, seconds: float) -> None:
    """Waits in a call of another group, in place of the one that the others make."""
    assert other is not None
    try:
        other.barrier(timeout=seconds)
    except weft.Timeout:
        return


def _stop(_other: weft.Group | None, _seconds: float) -> None:
    """Done from outside."""


FAULTS: dict[str, Callable[[weft.Group | None, float], None]] = {
    "stopped": _stop,
    "interpreter lock": _hold_interpreter_lock,
    "slow loader": _load_slowly,
    "missing call": _make_other_call,
}
"""Faults of a culprit, by name; the last one once in a job."""
