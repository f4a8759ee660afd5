"""Worker groups: persistent processes, one per rank, for tasks on a group.

A team is spawned once per number of ranks and transport, and kept for all tests that want such a
one. Tasks are functions `task(group, ...)` of the modules `tasks_*.py`, sent by name over pipes.
Every command has a deadline; when a team misses one, or a worker dies, the stacks of its workers go
to stderr, all of them are killed, and the next test gets a new team.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from weft.processes.ports import free_ports

DEADLINE_SECONDS = 60.0
_STACKS_SECONDS = 1.0
_STOP_SECONDS = 15.0
_WORKER = Path(__file__).with_name("worker.py")


class TeamFailure(AssertionError):
    """A task failed on some rank, or did not end in time."""


@dataclasses.dataclass(frozen=True)
class TaskFailure:
    """How a task failed on a rank."""

    kind: str
    text: str
    trace: str


class Team:
    """As many worker processes as there are ranks."""

    def __init__(self, size: int, transport: str, environment: dict[str, str] | None = None) -> None:
        self.environment = environment or {}
        self.size = size
        self.transport = transport
        self._workers: list[subprocess.Popen[bytes]] = []
        self._pipes: list[Connection] = []
        for _ in range(size):
            self._spawn(environment or {})
        self.address = f"127.0.0.1:{free_port()}"
        self._join()

    @property
    def alive(self) -> bool:
        """Whether every worker still runs."""
        return bool(self._workers) and all(worker.poll() is None for worker in self._workers)

    def pid(self, rank: int) -> int:
        """The process of a rank."""
        return self._workers[rank].pid

    def run(self, task: Callable[..., Any], *arguments: Any, deadline: float = DEADLINE_SECONDS) -> list[Any]:
        """Returns the results of `task(group, *arguments)` by rank. Any failure fails the test."""
        results = self.outcomes(task, *arguments, deadline=deadline)
        failures = [(rank, r) for rank, r in enumerate(results) if isinstance(r, TaskFailure)]
        if failures:
            self.kill()
            raise TeamFailure("\n".join(f"rank {rank}: {f.trace}" for rank, f in failures))
        return results

    def outcomes(self, task: Callable[..., Any], *arguments: Any, deadline: float = DEADLINE_SECONDS) -> list[Any]:
        """As `run`, with a `TaskFailure` as the result of a rank that raised."""
        command = (task.__module__, task.__qualname__, arguments)
        return self.command_each("run", [command] * self.size, deadline)

    def command_each(self, verb: str, arguments: Sequence[tuple], deadline: float = DEADLINE_SECONDS) -> list[Any]:
        """Sends every worker a command, and returns the answers."""
        self.start_each(verb, arguments)
        return self.collect(deadline=deadline)

    def start(self, task: Callable[..., Any], *arguments: Any) -> None:
        """As `outcomes`, without waiting: see `collect`."""
        self.start_each("run", [(task.__module__, task.__qualname__, arguments)] * self.size)

    def start_each(self, verb: str, arguments: Sequence[tuple]) -> None:
        """Sends every worker a command."""
        for pipe, own in zip(self._pipes, arguments, strict=True):
            pipe.send((verb, own))

    def collect(self, ranks: Sequence[int] | None = None, *, deadline: float = DEADLINE_SECONDS) -> list[Any]:
        """The answers of these ranks (of all, by default) to a command."""
        wanted = list(range(self.size)) if ranks is None else list(ranks)
        ends = time.monotonic() + deadline
        answers: dict[int, Any] = {}
        while len(answers) < len(wanted):
            missing = {self._pipes[rank]: rank for rank in wanted if rank not in answers}
            ready = wait(list(missing), max(0.0, ends - time.monotonic()))
            if not ready:
                self._fail(f"ranks {sorted(missing.values())} have not answered within {deadline:.0f} s")
            for pipe in ready:
                rank = missing[pipe]
                try:
                    answers[rank] = pipe.recv()
                except (EOFError, ConnectionResetError):
                    self._fail(f"the process of rank {rank} died")
        return [answers[rank] for rank in wanted]

    def signal(self, rank: int, number: signal.Signals) -> None:
        """Sends a signal to the process of a rank. After SIGSTOP, all its threads have stopped."""
        os.kill(self.pid(rank), number)
        if number == signal.SIGSTOP:
            # Until its main thread gets a core to take the signal, the other threads run on.
            os.waitid(os.P_PID, self.pid(rank), os.WSTOPPED)

    def stop(self) -> None:
        """Lets the workers end by themselves. It is a failure if one does not, or not well."""
        for pipe in self._pipes:
            pipe.close()
        ends = time.monotonic() + _STOP_SECONDS
        while any(worker.poll() is None for worker in self._workers) and time.monotonic() < ends:
            time.sleep(0.005)
        codes = [worker.poll() for worker in self._workers]
        if None in codes:
            self._fail(f"ranks have not ended within {_STOP_SECONDS} s; exit codes are {codes}")
        self._workers, self._pipes = [], []
        if any(codes):
            raise TeamFailure(f"ranks ended badly: exit codes are {codes}")

    def kill(self) -> None:
        """Kills every worker, with its children."""
        for worker in self._workers:
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
        for worker in self._workers:
            worker.wait()
        for pipe in self._pipes:
            pipe.close()
        self._workers, self._pipes = [], []

    def _join(self) -> None:
        """Makes the group of all workers."""
        joins = [(rank, self.size, self.transport, self.address) for rank in range(self.size)]
        failures = [answer for answer in self.command_each("join", joins) if isinstance(answer, TaskFailure)]
        if failures:
            self.kill()
            raise TeamFailure("\n".join(failure.trace for failure in failures))

    def _spawn(self, environment: dict[str, str]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, str(_WORKER), str(theirs.fileno())]
            worker = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=os.environ | environment,
            )
        self._workers.append(worker)
        self._pipes.append(Connection(ours.detach()))

    def _fail(self, why: str) -> None:
        for worker in self._workers:
            if worker.poll() is None:
                os.kill(worker.pid, signal.SIGUSR1)
        time.sleep(_STACKS_SECONDS)
        self.kill()
        raise TeamFailure(why)


class Teams:
    """Teams by number of ranks and transport. At most one is alive, so that workers do not compete
    for cores.
    """

    def __init__(self) -> None:
        self._key: tuple[int, str] | None = None
        self._team: Team | None = None

    def get(self, size: int, transport: str) -> Team:
        """A team that works."""
        if self._team is None or self._key != (size, transport) or not self._team.alive:
            self.stop()
            self._team, self._key = Team(size, transport), (size, transport)
        return self._team

    def stop(self) -> None:
        """Ends the team that is alive."""
        team, self._team = self._team, None
        if team is not None and team.alive:
            team.stop()
        elif team is not None:
            team.kill()


def free_port() -> int:
    """Returns a port without a listener."""
    return free_ports(1)[0]
