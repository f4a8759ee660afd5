"""Worker groups: the processes of one library, one per rank, as started by their launcher."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.processes import local_ranks
from weft.processes.local_ranks import Command
from weft_lab.bench.libraries import Description
from weft_lab.bench.message_socket import MessageSocket
from weft_lab.bench.processes import BenchError

_MEET_S = 120.0
_ANSWER_S = 300.0
_END_S = 10.0
_LOOK_S = 1.0
"""The interval of checks that the processes still run, while they do not answer."""


@dataclass
class WorkerGroup:
    """Running processes. All of them sleep in a read between requests."""

    name: str
    processes: list[subprocess.Popen[bytes]]
    lines: dict[int, MessageSocket] = field(default_factory=dict)
    """By rank."""
    contenders: list[Description] = field(default_factory=list)

    def ask(self, ranks: int, question: Mapping[str, object]) -> list[Any]:
        """Sends a request; returns the answers of the first ranks."""
        for rank in range(ranks):
            self.lines[rank].send(question)
        deadline = time.monotonic() + _ANSWER_S
        return [self._answer(self.lines[rank], deadline) for rank in range(ranks)]

    def check(self) -> None:
        """Raises if a process has ended."""
        for process in self.processes:
            if process.poll() is not None:
                raise _ended(self.name, process.returncode)

    def _answer(self, line: MessageSocket, deadline: float) -> Any:
        while True:
            try:
                return line.receive(_LOOK_S)
            except TimeoutError:
                self.check()
                if time.monotonic() > deadline:
                    raise BenchError(f"{self.name} does not answer for {_ANSWER_S:.0f} s") from None
            except EOFError:
                raise self._lost() from None

    def _lost(self) -> BenchError:
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                if process.wait(_END_S) != 0:
                    break
        codes = [process.returncode for process in self.processes]
        return _ended(self.name, next((code for code in codes if code), 0))

    def dismiss(self) -> None:
        """Ends the processes, and waits for them."""
        for line in self.lines.values():
            with contextlib.suppress(OSError):
                line.send({"do": "end"})
        deadline = time.monotonic() + _END_S
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        local_ranks.end(self.processes)


@contextlib.contextmanager
def meet(path: Path, commands: Mapping[str, Sequence[Command]], ranks: int) -> Iterator[list[WorkerGroup]]:
    """Starts every worker group's processes, and waits until all of their ranks have connected."""
    worker_groups: dict[str, WorkerGroup] = {}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))
        server.listen(ranks * len(commands))
        try:
            for name, lines in commands.items():
                worker_groups[name] = WorkerGroup(
                    name, [subprocess.Popen(line, env=environment) for line, environment in lines]
                )
            _gather(server, worker_groups, ranks)
            yield list(worker_groups.values())
            for group in worker_groups.values():
                group.dismiss()
        finally:
            for group in worker_groups.values():
                local_ranks.end(group.processes)


def _gather(server: socket.socket, worker_groups: Mapping[str, WorkerGroup], ranks: int) -> None:
    """Accepts the connections of all processes."""
    deadline = time.monotonic() + _MEET_S
    server.settimeout(_LOOK_S)
    while waiting := [group.name for group in worker_groups.values() if len(group.lines) < ranks]:
        for group in worker_groups.values():
            group.check()
        if time.monotonic() > deadline:
            raise BenchError(f"{', '.join(waiting)}: not all ranks have connected after {_MEET_S:.0f} s")
        with contextlib.suppress(TimeoutError):
            line = MessageSocket(server.accept()[0])
            hello = line.receive(_MEET_S)
            group = worker_groups[hello["group"]]
            group.lines[hello["rank"]] = line
            group.contenders = [Description(**value) for value in hello["contenders"]]


def _ended(name: str, status: int) -> BenchError:
    return BenchError(f"a measuring process of {name} has ended with status {status}; its own message is above")
