"""Publication of a process's counters: an HTTP endpoint, or a file written at an interval."""

from __future__ import annotations

import atexit
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from weft._weft import AboveStandardStreams
from weft.errors import ConfigError
from weft.logs import LOGGER
from weft.metrics import exposition
from weft.metrics.collector import Collector

__all__ = ["Publisher"]

_INTERVAL_SECONDS = 10.0
"""How often the file is written."""


class Publisher:
    """Where this process's counters can be read."""

    def __init__(self, target: tuple[str, int] | Path, rank: int, local_rank: int | None) -> None:
        """Begins.

        Args:
            target: An address, to whose port the local rank is added, or a file, to whose name the
                rank is added.
            rank: This process's number in the job, which every sample names.
            local_rank: Its number on its host; None stands for `rank`.

        Raises:
            ConfigError: The address is taken, or the file cannot be written.
        """
        self.collector = Collector(rank)
        self._target = target
        if isinstance(target, Path):
            path = target.with_name(f"{target.stem}-rank{rank}{target.suffix}")
            _Writer(self.collector, path)
            LOGGER.info("counters are written to %s every %.0f s", path, _INTERVAL_SECONDS)
        else:
            host, port = target
            port = _serve(self.collector, host, port, rank if local_rank is None else local_rank)
            LOGGER.info("counters are served at http://%s:%d/metrics", f"[{host}]" if ":" in host else host, port)

    def check_target(self, target: tuple[str, int] | Path) -> None:
        """Raises unless this is where the counters are."""
        if target != self._target:
            raise ConfigError(f"metrics={target}: this process's counters are published at {self._target} already")


def _serve(collector: Collector, host: str, first: int, offset: int) -> int:
    """Serves the counters on threads of its own for as long as the process runs; says the port."""
    port = first + offset if first else 0

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404, "the counters are at /metrics")
                return
            body = exposition.text(collector.samples()).encode()
            self.send_response(200)
            self.send_header("Content-Type", exposition.CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            LOGGER.debug(format, *arguments)

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        def get_request(self) -> tuple[socket.socket, Any]:
            with AboveStandardStreams():
                return super().get_request()

    try:
        with AboveStandardStreams():
            server = Server((host, port), Handler)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"WEFT_METRICS: cannot listen at {host}:{port} ({error}). Each process of a host listens at the port given "
            f"plus its local rank, here {first} + {offset}: choose a port from which on enough are free"
        ) from None
    # A forked child would keep the port when this process has ended.
    os.register_at_fork(after_in_child=server.socket.close)
    threading.Thread(target=server.serve_forever, name="weft-metrics", daemon=True).start()
    return server.server_port


class _Writer:
    """Writes the counters to a file now, at an interval, and when the process ends."""

    def __init__(self, collector: Collector, path: Path) -> None:
        self._collector = collector
        self._path = path
        self._process = os.getpid()
        try:
            self._write()
        except OSError as error:
            raise ConfigError(f"WEFT_METRICS: cannot write {path}: {error.strerror}") from None
        atexit.register(self._write_if_possible)
        threading.Thread(target=self._repeat, name="weft-metrics", daemon=True).start()

    def _repeat(self) -> None:
        clock = threading.Event()
        while not clock.wait(_INTERVAL_SECONDS):
            self._write_if_possible()

    def _write_if_possible(self) -> None:
        if self._process != os.getpid():  # a forked child ends
            return
        try:
            self._write()
        except OSError as error:
            LOGGER.warning("counters cannot be written to %s: %s", self._path, error.strerror)

    def _write(self) -> None:
        """Replaces the file as a whole: who reads it never sees a part."""
        beside = self._path.with_name(f".{self._path.name}.new")
        with AboveStandardStreams():
            beside.write_text(exposition.text(self._collector.samples()))
        beside.replace(self._path)
