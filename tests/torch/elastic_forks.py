"""Elastic trainings whose processes start in an instant: see `elastic_nursery.py`."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.processes.ports import free_ports

HERE = Path(__file__).parent
PATIENCE_S = 90.0
OF_LAUNCHERS = ("RANK", "WORLD_SIZE", "MASTER_PORT")


class Fork:
    """A process that the nursery has started, with what `subprocess.Popen` has."""

    def __init__(self, pid: int, status: Path) -> None:
        self.pid = pid
        self._status = status
        self._file = -1
        with contextlib.suppress(ProcessLookupError):  # it may have ended
            self._file = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """As what it has ended; None while it runs."""
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        status = self._ended(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return status

    def send_signal(self, number: int) -> None:
        if self._file >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._file, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int | None:
        if self._file >= 0:
            if not select.select([self._file], [], [], timeout)[0]:
                return None
            os.close(self._file)
            self._file = -1
        # A process that is killed writes none.
        text = self._status.read_text() if self._status.exists() else ""
        return int(text) if text else -signal.SIGKILL


class Nursery:
    """The process whose forks they are."""

    def __init__(self) -> None:
        own = {key: value for key, value in os.environ.items() if key not in OF_LAUNCHERS}
        command = [sys.executable, HERE / "elastic_nursery.py"]
        self._process = subprocess.Popen(command, env=own, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def start(self, directory: Path, name: str, options: Sequence[str], variables: Mapping[str, str]) -> Fork:
        """Starts a process that writes NAME.jsonl, NAME.log and at its end NAME.status."""
        paths = {kind: directory / f"{name}.{kind}" for kind in ("jsonl", "log", "status")}
        paths["log"].touch()
        order = {
            "arguments": [str(paths["jsonl"]), *options],
            "variables": {"WEFT_TIMEOUT": "60", "WEFT_LOG": "warning", **variables},
            "log": str(paths["log"]),
            "status": str(paths["status"]),
        }
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)
        return Fork(int(self._process.stdout.readline()), paths["status"])

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Process:
    """A process of the training, with what it has recorded."""

    def __init__(self, directory: Path, name: str, process: Fork) -> None:
        self.record = directory / f"{name}.jsonl"
        self.log = directory / f"{name}.log"
        self.name = name
        self.process = process

    @property
    def lines(self) -> list[dict[str, Any]]:
        if not self.record.exists():
            return []
        return [json.loads(line) for line in self.record.read_text().splitlines() if line.endswith("}")]

    @property
    def steps(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if "step" in line]

    def until(self, found: Any, what: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not found(self):
            lives = time.monotonic() < end and self.process.poll() is None
            assert lives, f"{self.name}: {what}\n{self.log.read_text()}"
            time.sleep(0.02)

    def until_step(self, number: int, ranks: int) -> None:
        """Waits until it has done a step from this number on, among this many ranks."""
        self.until(
            lambda one: any(line["step"] >= number and line["ranks"] == ranks for line in one.steps),
            f"no step {number} of {ranks} ranks",
        )

    def until_log(self, text: str) -> None:
        self.until(lambda one: text in one.log.read_text(), f"no {text!r}")

    def ended(self) -> dict[str, Any]:
        """Its last line; it must end in order."""
        status = self.process.wait(PATIENCE_S)
        assert status == 0, f"{self.name} ended with {status}\n{self.log.read_text()}"
        return self.lines[-1]


class Training:
    def __init__(self, directory: Path, nursery: Nursery) -> None:
        self.directory = directory
        self.nursery = nursery
        self.port = free_ports(1)[0]
        self.all: list[Process] = []

    def start(self, name: str, *options: str, **variables: str) -> Process:
        lobby = {"WEFT_LOBBY": f"127.0.0.1:{self.port}"}
        process = self.nursery.start(self.directory, name, options, lobby | variables)
        self.all.append(Process(self.directory, name, process))
        return self.all[-1]

    def go(self, step: int) -> None:
        """Lets the processes continue that hold at a step."""
        (self.directory / f"go{step}").touch()

    def launch(
        self, count: int, *options: str, more: Mapping[int, Sequence[str]] | None = None, **variables: str
    ) -> list[Process]:
        """Starts the first ranks as a launcher does; some have `more` options."""
        place = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0])}
        place |= variables
        own = [[*options, *(more or {}).get(rank, ())] for rank in range(count)]
        return [self.start(f"rank{rank}", *one, RANK=str(rank), **place) for rank, one in enumerate(own)]

    def joined(self, wrapping: str) -> list[Process]:
        """Two ranks of a launcher, and a process that joins them after step 4."""
        # Where a commit waits for nothing, the ranks learn of newcomers at the next one.
        asked = 3 if wrapping == "overlapped" else 4
        held = ("--wrapping", wrapping, "--hold-at", str(asked))
        ranks = self.launch(2, *held)
        ranks[0].until_step(asked - 1, 2)
        newcomer = self.start("newcomer", *held)
        newcomer.until_log("waiting to join")
        self.go(asked)
        return [*ranks, newcomer]

    def end(self) -> None:
        for one in self.all:
            if one.process.poll() is None:
                one.process.kill()
            one.process.wait()


@contextlib.contextmanager
def training_in(directory: Path, nursery: Nursery) -> Iterator[Training]:
    made = Training(directory, nursery)
    try:
        yield made
    finally:
        made.end()


def losses(*processes: Process) -> dict[int, set[float]]:
    """All losses of each step."""
    found: dict[int, set[float]] = {}
    for process in processes:
        for line in process.steps:
            found.setdefault(line["step"], set()).add(line["loss"])
    return found


def train_together(*processes: Process) -> None:
    """Waits until these train, and nobody else."""
    for one in processes:
        one.until(lambda one: one.steps and one.steps[-1]["ranks"] == len(processes), "they do not train together")
