"""An HTTP server for one page, on one thread, with bounds on what its clients can take.

A client has a few seconds from its connection on. There are few connections at a time: a new one
ends the oldest. So a process that publishes counters keeps its threads and descriptors for its work
under any number of clients, and a scraper that sends its request with the connection is answered
beside any number of idle ones.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable

from weft._weft import AboveStandardStreams
from weft.output.logs import LOGGER

__all__ = ["PageServer"]

_CONNECTIONS_MAX = 16
_SECONDS_MAX = 5.0
"""The duration of a connection."""
_REQUEST_BYTES_MAX = 8192
_PAUSE_SECONDS = 1.0
"""Seconds without new connections after one could not be accepted, usually without descriptors."""
_END = b"\r\n\r\n"


class _Connection:
    def __init__(self, client: socket.socket, now: float) -> None:
        client.setblocking(False)
        self.client = client
        self.due = now + _SECONDS_MAX
        self.request = b""
        self.answer: memoryview | None = None
        """The bytes left to send; None until the request is complete."""


class PageServer:
    """Serves what `page` returns at one path, until the process ends."""

    def __init__(self, address: tuple[str, int], path: str, content_type: str, page: Callable[[], str]) -> None:
        """Listens, and starts the thread.

        Raises:
            OSError, OverflowError: The address cannot be used.
            RuntimeError: No thread can be started.
        """
        self._path, self._content_type, self._page = path.encode(), content_type, page
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        with AboveStandardStreams():
            self._listener = socket.create_server(address, family=family, backlog=_CONNECTIONS_MAX)
        self._listener.setblocking(False)
        self._connections: dict[int, _Connection] = {}
        self._accepts_at = 0.0
        # A forked child would keep the port after the end of this process.
        os.register_at_fork(after_in_child=self._forget_descriptors)
        try:
            threading.Thread(target=self._serve, name="weft-metrics", daemon=True).start()
        except RuntimeError:
            self._listener.close()
            raise

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._listener.getsockname()[1])

    def _serve(self) -> None:
        while True:
            now = time.monotonic()
            for late in [one for one in self._connections.values() if one.due <= now]:
                self._end(late)
            for descriptor, _ in self._poll(now):
                if descriptor == self._listener.fileno():
                    self._accept()
                elif connection := self._connections.get(descriptor):
                    self._go_on(connection)

    def _poll(self, now: float) -> list[tuple[int, int]]:
        poll = select.poll()
        due = [connection.due for connection in self._connections.values()]
        if self._accepts_at <= now:
            poll.register(self._listener, select.POLLIN)
        else:
            due.append(self._accepts_at)
        for descriptor, connection in self._connections.items():
            poll.register(descriptor, select.POLLIN if connection.answer is None else select.POLLOUT)
        return poll.poll(max(0.0, min(due) - now) * 1000 + 1 if due else None)

    def _accept(self) -> None:
        try:
            with AboveStandardStreams():
                client, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            LOGGER.warning("WEFT_METRICS: no connection can be accepted for a while: %s", error.strerror)
            self._accepts_at = time.monotonic() + _PAUSE_SECONDS
            return
        if len(self._connections) >= _CONNECTIONS_MAX:
            self._end(min(self._connections.values(), key=lambda one: one.due))
        self._connections[client.fileno()] = _Connection(client, time.monotonic())

    def _go_on(self, connection: _Connection) -> None:
        try:
            if connection.answer is None:
                self._receive(connection)
            if connection.answer is not None:
                connection.answer = connection.answer[connection.client.send(connection.answer) :]
                if not connection.answer:
                    self._end(connection)
        except BlockingIOError:
            pass
        except OSError:
            self._end(connection)

    def _receive(self, connection: _Connection) -> None:
        received = connection.client.recv(_REQUEST_BYTES_MAX)
        connection.request += received
        if _END in connection.request:
            connection.answer = memoryview(self._answer_to(connection.request))
        elif not received or len(connection.request) >= _REQUEST_BYTES_MAX:
            self._end(connection)

    def _answer_to(self, request: bytes) -> bytes:
        method, _, rest = request.partition(b"\r\n")[0].partition(b" ")
        if method != b"GET":
            return _response("405 Method Not Allowed", "only GET is answered\n")
        if rest.partition(b" ")[0].partition(b"?")[0] != self._path:
            return _response("404 Not Found", f"the counters are at {self._path.decode()}\n")
        try:
            return _response("200 OK", self._page(), self._content_type)
        except Exception as error:  # the next request may succeed after any error
            LOGGER.warning("WEFT_METRICS: the counters could not be read", exc_info=error)
            return _response("500 Internal Server Error", "the counters could not be read\n")

    def _end(self, connection: _Connection) -> None:
        del self._connections[connection.client.fileno()]
        with contextlib.suppress(OSError):  # it may have ended already
            connection.client.shutdown(socket.SHUT_RDWR)  # also if a forked child holds it as well
        connection.client.close()

    def _forget_descriptors(self) -> None:
        self._listener.close()
        for connection in list(self._connections.values()):
            connection.client.close()


def _response(status: str, body: str, content_type: str = "text/plain; charset=utf-8") -> bytes:
    content = body.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(content)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + content
