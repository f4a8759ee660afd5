"""Launch and control of the measuring processes."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence

from weft.processes.local_ranks import Command
from weft_lab.bench import neighbours, peers, processes, worker_groups
from weft_lab.bench.coordinator import BenchCoordinator
from weft_lab.bench.peers import PeerLibrary, RankPlacement, remote_shell
from weft_lab.bench.processes import BenchError, RankProcesses
from weft_lab.bench.rows import BenchRow
from weft_lab.bench.spec import RING, Spec

__all__ = [
    "QUIET_TORCH",
    "BenchError",
    "conducted",
    "emulated_ports",
    "launched_by",
    "measure",
    "shared_directory",
]

_EMULATED_FIRST_PORT = 29500
QUIET_TORCH = {"TORCH_CPP_LOG_LEVEL": "ERROR"}
"""Emulated hosts have no names for addresses, of which torch warns."""


def emulated_ports(count: int) -> list[int]:
    """Ports of an emulated host, which no other program uses."""
    return [_EMULATED_FIRST_PORT + index for index in range(count)]


@contextlib.contextmanager
def shared_directory() -> Iterator[str]:
    """A directory in memory, which emulated hosts see too."""
    with tempfile.TemporaryDirectory(prefix="weft-bench-", dir="/dev/shm") as directory:
        yield directory


def measure(
    spec: Spec,
    on_size: Callable[[Sequence[BenchRow]], None],
    on_round: Callable[[], object] = lambda: None,
    on_end: Callable[[BenchCoordinator], object] = lambda _: None,
) -> list[BenchRow]:
    """Runs the measuring processes, and yields the rows of every size as they arrive.

    `on_round` is called after every round of every size, `on_end` after the last size.
    """
    found: list[BenchRow] = []
    with conducted(spec, on_round) as coordinator:
        for size in spec.sizes:
            rows = coordinator.measure(size)
            on_size(rows)
            found += rows
        on_end(coordinator)
    return found


@contextlib.contextmanager
def conducted(spec: Spec, on_round: Callable[[], object] = lambda: None) -> Iterator[BenchCoordinator]:
    """The running measuring processes of a run."""
    spec.save()
    with (
        worker_groups.meet(spec.socket_path, _commands(spec), spec.ranks) as there,
        neighbours.started(spec.neighbours) as beside,
    ):
        yield BenchCoordinator(spec, there, beside, on_round)


def _commands(spec: Spec) -> dict[str, list[Command]]:
    """The commands to start, by worker group."""
    if spec.through == "torch":  # torch's backends take no arguments
        environment = {"WEFT_TRANSPORT": spec.transport, "WEFT_POOL_BYTES": str(spec.pool_bytes)}
        return {"torch": _own(spec, "torch", {**environment, **QUIET_TORCH})}
    commands = {"weft": _own(spec, "weft", {})}
    for name in spec.peers:
        if name == RING:  # weft's own
            continue
        if name == "gloo":
            commands[name] = _own(spec, name, QUIET_TORCH)
        else:
            commands[name] = _by_its_launcher(spec, peers.find(name))
    return commands


def _own(spec: Spec, group: str, environment: Mapping[str, str]) -> list[Command]:
    """Processes that weft's own launchers start."""
    return _started(spec, _worker(spec, group), spec.ranks, environment)


def _by_its_launcher(spec: Spec, peer: PeerLibrary) -> list[Command]:
    return launched_by(peer, _ranks(spec, _worker(spec, peer.name), spec.ranks, {}), spec.directory)


def launched_by(peer: PeerLibrary, ranks: RankProcesses, directory: str) -> list[Command]:
    """Processes that a peer's launcher starts: on this host, or from the first emulated one.

    On emulated hosts, the launcher reaches the others by a program in the directory, which all of
    them share.

    Raises:
        BenchError: The peer is not installed.
    """
    place = RankPlacement(ranks.ranks, ranks.hosts)
    command, variables = peer.command(list(ranks.program), place, remote_shell.agent_path(directory))
    environment = {**variables, **ranks.environment}
    if ranks.hosts == 1:
        return [(command, environment)]
    program = ["-m", "weft_lab.bench.peers.remote_shell", str(ranks.hosts), directory, *command]
    return list(
        processes.commands(dataclasses.replace(ranks, program=program, ranks=ranks.hosts, environment=environment))
    )


def _worker(spec: Spec, group: str) -> list[str]:
    return ["-m", "weft_lab.bench.worker", str(spec.path), group]


def _started(spec: Spec, program: list[str], count: int, environment: Mapping[str, str]) -> list[Command]:
    """This many processes, as many on each host."""
    return list(processes.commands(_ranks(spec, program, count, environment)))


def _ranks(spec: Spec, program: list[str], count: int, environment: Mapping[str, str]) -> RankProcesses:
    return RankProcesses(
        program=program,
        ranks=count,
        port=spec.ports[0],
        hosts=spec.hosts,
        gbps=spec.gbps,
        delay_ms=spec.delay_ms,
        shared=[spec.directory],
        environment=environment,
    )
