"""Resets of this process's TCP connections, as a middle box or an administrator resets them."""

import ctypes
import os
import random
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)
_NOWHERE = (ctypes.c_uint16 * 8)(socket.AF_UNSPEC)


def sockets(look: Callable[[socket.socket], Any]) -> list[tuple[int, Any]]:
    """This process's sockets at which `look` finds something: their descriptors, and what it is."""
    found = []
    for entry in list(Path("/proc/self/fd").iterdir()):
        with suppress(OSError):
            if entry.readlink().name.startswith("socket:"):
                with socket.socket(fileno=os.dup(int(entry.name))) as one:
                    if (seen := look(one)) is not None:
                        found.append((int(entry.name), seen))
    return sorted(found, key=lambda one: one[0])


def connections() -> list[int]:
    """The descriptors of this process's TCP connections."""
    families = socket.AF_INET, socket.AF_INET6
    return [number for number, _ in sockets(lambda one: one.getpeername() if one.family in families else None)]


def reset(descriptor: int) -> None:
    """Resets a connection: what is queued at this end is lost, and the other end gets a reset."""
    _LIBC.connect(descriptor, ctypes.byref(_NOWHERE), ctypes.sizeof(_NOWHERE))


def reset_one(draw: random.Random) -> None:
    """Resets one of the connections."""
    if found := connections():
        reset(draw.choice(found))
