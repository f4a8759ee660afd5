"""Measuring processes, one per rank, on this host or emulated ones."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from weft import config
from weft.processes import local_ranks
from weft.processes.local_ranks import Command, RanksError

__all__ = ["BenchError", "RankProcesses", "commands", "run"]


class BenchError(RanksError):
    """The measurement failed."""


@dataclass(frozen=True)
class RankProcesses:
    """Processes of one program."""

    program: Sequence[str]
    """The arguments of Python."""
    ranks: int
    port: int
    """Their meeting point, unless the hosts are emulated."""
    hosts: int = 1
    gbps: float | None = None
    delay_ms: float | None = None
    shared: Sequence[str] = ()
    """The directories that emulated hosts must see besides the working directory."""
    environment: Mapping[str, str] = field(default_factory=dict)


def run(what: RankProcesses, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Runs the processes until they end, and calls `meanwhile` every tenth of a second."""
    local_ranks.run(commands(what), meanwhile)


def commands(what: RankProcesses) -> list[Command]:
    """The command lines to start, each with its environment.

    One per rank, or one launcher of emulated hosts.
    """
    if what.hosts == 1:
        return local_ranks.commands(what.program, what.ranks, what.port, what.environment)
    options = ["--hosts", str(what.hosts), "--ranks-per-host", str(what.ranks // what.hosts), "--grace", "1"]
    for directory in what.shared:
        options += ["--share", directory]
    if what.gbps is not None:
        options += ["--gbps", str(what.gbps)]
    if what.delay_ms is not None:
        options += ["--delay-ms", str(what.delay_ms)]
    environment = {**config.environment(), "OMP_NUM_THREADS": "1", **what.environment}
    return [([sys.executable, "-m", "weft.cli", "hosts", *options, "--", sys.executable, *what.program], environment)]
