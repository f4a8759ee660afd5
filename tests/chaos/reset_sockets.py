"""Resets of this process's TCP connections, as a middle box or an administrator resets them."""

import ctypes
import os
import random
import socket
from contextlib import suppress
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_NOWHERE = (ctypes.c_uint16 * 8)(socket.AF_UNSPEC)


def connections() -> list[int]:
    """The descriptors of this process's TCP connections."""
    found = []
    for entry in list(Path("/proc/self/fd").iterdir()):
        with suppress(OSError):
            if not entry.readlink().name.startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as one:
                if one.family in (socket.AF_INET, socket.AF_INET6) and one.getpeername():
                    found.append(int(entry.name))
    return sorted(found)


def reset(descriptor: int) -> None:
    """Resets a connection: what is queued at this end is lost, and the other end gets a reset."""
    _LIBC.connect(descriptor, ctypes.byref(_NOWHERE), ctypes.sizeof(_NOWHERE))


def reset_one(draw: random.Random) -> None:
    """Resets one of the connections."""
    if found := connections():
        reset(draw.choice(found))
