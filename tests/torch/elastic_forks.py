"""Processes of an elastic training that start in an instant: see `elastic_nursery.py`."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).parent
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
