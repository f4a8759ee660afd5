"""Publication of a process's counters: an HTTP endpoint, or a file written at an interval.

Errors here do not end a job: they are warnings.
"""

from __future__ import annotations

import atexit
import os
import threading
import warnings
from pathlib import Path

from weft.observability.metrics import exposition
from weft.observability.metrics.collector import Collector
from weft.observability.metrics.server import PageServer
from weft.output import files
from weft.output.logs import LOGGER

__all__ = ["Publisher"]

_INTERVAL_SECONDS = 10.0
"""The interval between two writes of the file."""


class Publisher:
    """The publication of this process's counters."""

    def __init__(self, target: tuple[str, int] | Path, rank: int, local_rank: int | None) -> None:
        """Starts; warns if the address is taken or the file cannot be written.

        Args:
            target: An address, to whose port the local rank is added, or a file, to whose name the
                rank is added.
            rank: This process's rank in the job, which every sample names.
            local_rank: Its rank on its host; None stands for `rank`.
        """
        self.collector = Collector(rank)
        self._target = target
        if isinstance(target, Path):
            path = target.with_name(f"{target.stem}-rank{rank}{target.suffix}")
            _Writer(self.collector, path)
            LOGGER.info("counters are written to %s every %.0f s", path, _INTERVAL_SECONDS)
        else:
            _serve(self.collector, *target, rank if local_rank is None else local_rank)

    def check_target(self, target: tuple[str, int] | Path) -> None:
        """Warns unless the counters are published here."""
        if target != self._target:
            _warn(f"metrics={target}: this process's counters are published at {self._target} already")


def _serve(collector: Collector, host: str, first: int, offset: int) -> None:
    """Serves the counters for as long as the process runs."""
    address = host, first + offset if first else 0
    try:
        server = PageServer(address, "/metrics", exposition.CONTENT_TYPE, lambda: exposition.text(collector.samples()))
    except (OSError, OverflowError, RuntimeError) as error:
        _warn(
            f"WEFT_METRICS: cannot listen at {host}:{address[1]} ({error}), so the counters of this process are not "
            f"served. Each process of a host listens at the port given plus its local rank, here {first} + {offset}: "
            "choose a port that is followed by enough free ones"
        )
        return
    LOGGER.info("counters are served at http://%s:%d/metrics", f"[{host}]" if ":" in host else host, server.port)


class _Writer:
    """Writes the counters to a file now, at an interval, and when the process ends."""

    def __init__(self, collector: Collector, path: Path) -> None:
        self._collector = collector
        self._path = path
        self._process = os.getpid()
        try:
            self._write()
        except OSError as error:
            _warn(f"WEFT_METRICS: cannot write {path} ({error}); trying again every {_INTERVAL_SECONDS:.0f} s")
        atexit.register(self._write_if_possible)
        try:
            threading.Thread(target=self._repeat, name="weft-metrics", daemon=True).start()
        except RuntimeError as error:
            _warn(f"WEFT_METRICS: {path} is written at the end only, because no thread could be started: {error}")

    def _repeat(self) -> None:
        clock = threading.Event()
        while not clock.wait(_INTERVAL_SECONDS):
            self._write_if_possible()

    def _write_if_possible(self) -> None:
        if self._process != os.getpid():  # this is a forked child
            return
        try:
            self._write()
        except Exception as error:  # the job continues after any error
            LOGGER.warning("WEFT_METRICS: cannot write %s: %s", self._path, error)

    def _write(self) -> None:
        files.write(self._path, exposition.text(self._collector.samples()))


def _warn(message: str) -> None:
    """Warns by `warnings`: log lines are shown only if WEFT_LOG is set."""
    warnings.warn(message, RuntimeWarning, stacklevel=2)
