"""The answering end of `weft doctor --hosts`: the addresses of this host, and how much arrives.

A caller sends one line. `networks` is answered with the addresses that ranks of this host would
publish, `receive SECONDS` with the rate at which its data arrived. It gets no other answer, nothing
that arrives is kept, and callers are few and get little time.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from typing import Any, NamedTuple

from weft import _weft, config

__all__ = ["ALL", "GREETING", "LineService", "NamedAddress", "networks", "settled_interfaces"]

ALL = "all"
"""The interfaces that are measured where `WEFT_INTERFACE` is not set."""
GREETING = "weft doctor 1"
"""The beginning of each line that is sent, with the version of what follows."""
RECEIVE_S_MAX = 5.0
_CALLERS_MAX = 16
_PATIENCE_S = 3.0
_LINE_BYTES_MAX = 256
_PIECE_BYTES = 1 << 20
_RISE = 0.25
"""The part of a measurement that does not count: TCP finds its rate in it."""


class NamedAddress(NamedTuple):
    """The first address of a host in one network."""

    interface: str
    address: str


def settled_interfaces() -> str | None:
    """The interfaces that jobs which are started here would use; None where that is not set."""
    found: str | None = config.load().interface
    return found


def networks(interface: str | None) -> list[NamedAddress]:
    """This host's address in each network, in the order in which ranks connect them.

    Raises `ArgumentError` if an interface is unknown.
    """
    found: dict[int, NamedAddress] = {}
    for number, name, address in _weft.named_addresses(interface or ALL):
        found.setdefault(number, NamedAddress(name, address))
    return list(found.values())


class LineService:
    """Answers callers, each on a thread of its own."""

    def __init__(self) -> None:
        """Asks for this host's addresses now, so that a wrong setting is reported early."""
        interface = settled_interfaces()
        own = [address._asdict() for address in networks(interface)]
        self._networks = {"weft": _weft.__version__, "interface": interface, "networks": own}
        self._places = threading.BoundedSemaphore(_CALLERS_MAX)

    def answer(self, caller: socket.socket) -> None:
        """Serves a caller and closes the connection; one too many is only closed."""
        if not self._places.acquire(blocking=False):
            caller.close()
            return
        threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        try:
            # It may go, and say anything.
            with contextlib.suppress(OSError, ValueError), caller:
                caller.settimeout(_PATIENCE_S)
                match _asked(caller):
                    case ["networks"]:
                        _say(caller, self._networks)
                    case ["receive", seconds]:
                        _receive(caller, min(float(seconds), RECEIVE_S_MAX))
        finally:
            self._places.release()


def _asked(caller: socket.socket) -> list[str]:
    """The words of a caller's line; none if it is no `weft doctor`."""
    line = b""
    while not line.endswith(b"\n") and len(line) < _LINE_BYTES_MAX:
        byte = caller.recv(1)
        if not byte:
            return []
        line += byte
    greeting, _, words = line.decode("ascii").partition(":")
    return words.split() if greeting == GREETING else []


def _say(caller: socket.socket, what: dict[str, Any]) -> None:
    caller.sendall(json.dumps(what).encode() + b"\n")


def _receive(caller: socket.socket, seconds: float) -> None:
    """Answers with the bytes that arrive in this time, and waits until the caller has read that."""
    piece = bytearray(_PIECE_BYTES)
    caller.recv_into(piece)
    begin = now = time.monotonic()
    count, since = 0, begin
    while now - begin < seconds:
        received = caller.recv_into(piece)
        if not received:
            break
        now = time.monotonic()
        if now - begin < _RISE * seconds:
            since = now
        else:
            count += received
    _say(caller, {"bytes": count, "seconds": now - since})
    caller.shutdown(socket.SHUT_WR)
    # To close a socket with unread data would take the answer back.
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline and caller.recv_into(piece):
        pass
