"""Measuring processes, one per rank, on this host or emulated ones: start, supervision, end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from weft import config

_POLL_S = 0.1
_END_S = 5.0


class BenchError(RuntimeError):
    """The measurement could not be carried out."""


@dataclass(frozen=True)
class RankProcesses:
    """Processes of one program."""

    program: Sequence[str]
    """The arguments of Python."""
    ranks: int
    port: int
    """Where they meet, unless the hosts are emulated."""
    hosts: int = 1
    gbps: float | None = None
    delay_ms: float | None = None
    shared: Sequence[str] = ()
    """The directories that emulated hosts must see besides the working directory."""
    environment: Mapping[str, str] = field(default_factory=dict)


def run(what: RankProcesses, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Runs the processes to their end, and calls `meanwhile` every tenth of a second."""
    run_commands(commands(what), meanwhile)


def run_commands(
    started: Sequence[tuple[list[str], Mapping[str, str]]], meanwhile: Callable[[], object] = lambda: None
) -> None:
    """Runs command lines, each with its environment, as `run` does."""
    processes = [subprocess.Popen(command, env=dict(env)) for command, env in started]
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
        raise BenchError(f"a measuring process ended with status {failed[0]}; its own message is above")


def commands(what: RankProcesses) -> list[tuple[list[str], dict[str, str]]]:
    """The command lines to start, each with its environment.

    One per rank, or one launcher of emulated hosts.
    """
    program = [sys.executable, *what.program]
    common = {**config.environment(), "OMP_NUM_THREADS": "1", **what.environment}
    if what.hosts > 1:
        options = ["--hosts", str(what.hosts), "--ranks-per-host", str(what.ranks // what.hosts), "--grace", "1"]
        for directory in what.shared:
            options += ["--share", directory]
        if what.gbps is not None:
            options += ["--gbps", str(what.gbps)]
        if what.delay_ms is not None:
            options += ["--delay-ms", str(what.delay_ms)]
        return [([sys.executable, "-m", "weft.cli", "hosts", *options, "--", *program], common)]
    place = {"WORLD_SIZE": str(what.ranks), "LOCAL_WORLD_SIZE": str(what.ranks), "MASTER_ADDR": "127.0.0.1"}
    place["MASTER_PORT"] = str(what.port)
    return [(program, {**common, **place, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(what.ranks)]


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ends what still runs. Asks first: a launcher of emulated hosts takes its hosts down."""
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
