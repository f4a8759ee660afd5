"""Ranks as processes of this host: start, supervision, end."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from weft import config

__all__ = ["Command", "RanksError", "commands", "die_with_parent", "end", "run"]

Command = tuple[list[str], Mapping[str, str]]
"""A command line and its environment."""

_POLL_S = 0.1
_END_S = 5.0
_PR_SET_PDEATHSIG = 1


class RanksError(RuntimeError):
    """A rank that was started here has failed."""


def commands(
    program: Sequence[str], ranks: int, port: int, environment: Mapping[str, str] | None = None
) -> list[Command]:
    """The command lines of all ranks, which meet at a port.

    `program` has the arguments of Python; `environment` is added to this process's own.
    """
    common = {**config.environment(), "OMP_NUM_THREADS": "1", **(environment or {})}
    place = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1"}
    place["MASTER_PORT"] = str(port)
    line = [sys.executable, *program]
    return [(line, {**common, **place, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(ranks)]


def run(started: Sequence[Command], meanwhile: Callable[[], object] = lambda: None) -> None:
    """Runs command lines until they end, and calls `meanwhile` every tenth of a second.

    Raises:
        RanksError: A rank has failed; the others are ended.
    """
    processes = [subprocess.Popen(command, env=dict(environment)) for command, environment in started]
    try:
        while any(process.poll() is None for process in processes):
            if any(process.poll() for process in processes):
                break
            meanwhile()
            time.sleep(_POLL_S)
    finally:
        end(processes)
    failed = [process.returncode for process in processes if process.returncode != 0]
    if failed:
        raise RanksError(f"a process ended with status {failed[0]}; its own message is above")


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ends processes that still run: by SIGTERM, so that launchers end theirs, then by SIGKILL."""
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


def die_with_parent() -> None:
    """Makes the kernel kill the calling process when its parent ends for any reason."""
    library = ctypes.CDLL(None, use_errno=True)
    unused = [ctypes.c_ulong(0)] * 3
    if library.prctl(ctypes.c_int(_PR_SET_PDEATHSIG), ctypes.c_ulong(signal.SIGKILL), *unused) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_PDEATHSIG): {os.strerror(number)}")
