"""The command `weft top --json` beside a job, and when each of its looks came."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from weft import config

__all__ = ["Report", "Watcher", "is_quiet", "names"]

Report = dict[str, Any]
_START_S = 60.0


class Watcher:
    """Looks at the job once a second until it is closed."""

    def __init__(self, directory: Path | None = None) -> None:
        command = [sys.executable, "-m", "weft.cli", "top", "--json", "--interval", "1"]
        records = {} if directory is None else {"WEFT_FLIGHT_DIR": str(directory)}
        environment = {**config.environment(), **records}
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        self._looks: queue.Queue[tuple[float, Report]] = queue.Queue()
        threading.Thread(target=self._collect, daemon=True).start()

    def first(self, accepts: Callable[[Report], bool], deadline_s: float = _START_S) -> tuple[float, Report] | None:
        """The next look that is accepted, and when it came; None past the deadline."""
        ends = time.monotonic() + deadline_s
        while (left := ends - time.monotonic()) > 0:
            try:
                at, report = self._looks.get(timeout=left)
            except queue.Empty:
                break
            if accepts(report):
                return at, report
        return None

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the command."""
        self._process.kill()
        self._process.wait()

    def _collect(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._looks.put((time.monotonic(), json.loads(line)))


def is_quiet(report: Report) -> bool:
    """Whether all ranks answer, and nobody is blamed."""
    return not report["silent"] and not report["verdict"]["culprits"]


def names(report: Report, rank: int, operation: str) -> bool:
    """Whether the verdict names a rank, first, with its host, and the operation."""
    verdict = report["verdict"]
    return verdict["culprits"][:1] == [rank] and f"rank {rank} on " in verdict["text"] and operation in verdict["text"]
