"""Free ports of this host."""

from __future__ import annotations

import contextlib
import itertools
import random
import socket
from collections.abc import Iterator
from pathlib import Path

from weft._weft import AboveStandardStreams

__all__ = ["free_ports"]

_FIRST_PORT = 10000
_ANY = 0
"""Makes the system choose a port."""
_TRIES = 32
_PORTS_GIVEN = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """Ports of this host on which nothing listens.

    They are below the range from which the system assigns ports, if it leaves some there: a socket
    could get one of that range between its choice here and its use.
    """
    apart = range(_FIRST_PORT, int(_PORTS_GIVEN.read_text().split()[0]))
    tried = random.SystemRandom().sample(apart, min(len(apart), _TRIES * count))
    with contextlib.ExitStack() as stack:
        opened = _listening(stack, [*tried, *[_ANY] * count])
        return list(itertools.islice(opened, count))


def _listening(stack: contextlib.ExitStack, ports: list[int]) -> Iterator[int]:
    """The free ports among these, each held until the stack is closed."""
    for port in ports:
        with contextlib.suppress(OSError):
            with AboveStandardStreams():
                server = socket.create_server(("127.0.0.1", port))
            yield int(stack.enter_context(server).getsockname()[1])
