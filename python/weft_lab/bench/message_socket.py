"""Line protocol in JSON between the coordinating process and the measuring processes.

No process spins: a process without work sleeps in a read.
"""

from __future__ import annotations

import json
import select
import socket
from pathlib import Path
from typing import Any

_PIECE_BYTES = 1 << 16


class MessageSocket:
    """One end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._read = b""

    @staticmethod
    def connect(path: Path) -> MessageSocket:
        """Connects to the listener at a socket file."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(str(path))
        return MessageSocket(connection)

    def send(self, value: object) -> None:
        """Sends a value."""
        self._connection.sendall(json.dumps(value).encode() + b"\n")

    def receive(self, timeout_s: float | None = None) -> Any:
        """The next value; EOFError if the other end is closed, TimeoutError if none arrives."""
        while b"\n" not in self._read:
            if not select.select([self._connection], [], [], timeout_s)[0]:
                raise TimeoutError
            piece = self._connection.recv(_PIECE_BYTES)
            if not piece:
                raise EOFError
            self._read += piece
        text, _, self._read = self._read.partition(b"\n")
        return json.loads(text)

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()
