"""Messages between the launcher and the first process of an emulated host."""

import json
import socket
from typing import Any

_MESSAGE_BYTES_MAX = 65536


class HostControl:
    """One end of the connection. Each message is one packet, so none is ever received in part."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    @staticmethod
    def pair() -> tuple["HostControl", "HostControl"]:
        """Both ends of a new connection."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return HostControl(ours), HostControl(theirs)

    def fileno(self) -> int:
        """The descriptor, for selectors."""
        return self._socket.fileno()

    def send(self, **message: Any) -> bool:
        """Sends a message; returns False when the other end is closed."""
        try:
            self._socket.send(json.dumps(message).encode())
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def receive(self) -> dict[str, Any] | None:
        """Waits for the next message; returns None when the other end is closed."""
        try:
            packet = self._socket.recv(_MESSAGE_BYTES_MAX)
        except ConnectionResetError:
            return None
        return json.loads(packet) if packet else None

    def close(self) -> None:
        """Closes this end."""
        self._socket.close()
