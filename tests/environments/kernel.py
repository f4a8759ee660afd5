"""System calls that Python has no function for, and seccomp filters by way of libseccomp."""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import os
from collections.abc import Iterable
from pathlib import Path

NEW_USER, NEW_PID, NEW_NET, NEW_MOUNT, NEW_IPC, NEW_TIME, NEW_UTS = (
    0x10000000,
    0x20000000,
    0x40000000,
    0x00020000,
    0x08000000,
    0x00000080,
    0x04000000,
)
READ_ONLY, BIND, REMOUNT, RECURSIVE, PRIVATE = 1, 4096, 32, 16384, 1 << 18
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(spaces: int) -> None:
    """New namespaces for this process; a new PID namespace is for its children."""
    _check(_libc.unshare(spaces), "unshare")


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, data: str | None = None) -> None:
    """Mounts, in the process's mount namespace."""
    texts = [None if text is None else text.encode() for text in (source, target, kind, data)]
    _check(_libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3]), f"mount {target}")


def own_mounts() -> None:
    """A mount namespace, whose mounts no other process sees."""
    unshare(NEW_MOUNT)
    mount("none", "/", None, RECURSIVE | PRIVATE)


def map_user(inside: int) -> None:
    """A user namespace in which this process's user has another number."""
    user, group = os.geteuid(), os.getegid()
    unshare(NEW_USER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{inside} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{inside} {group} 1")


def refuse(calls: Iterable[str], error: int = errno.EPERM) -> None:
    """From now on the kernel answers these system calls of this process with an error."""
    _filter(_ALLOW, _ERRNO | error, calls)


def allow_only(calls: Iterable[str], error: int = errno.EPERM) -> None:
    """From now on the kernel answers all other system calls of this process with an error."""
    _filter(_ERRNO | error, _ALLOW, calls)


def _filter(otherwise: int, action: int, calls: Iterable[str]) -> None:
    library = _seccomp_library()
    assert library is not None
    context = library.seccomp_init(otherwise)
    for call in calls:
        number = library.seccomp_syscall_resolve_name(call.encode())
        if number >= 0:  # Otherwise this machine has no such call.
            _check(library.seccomp_rule_add(ctypes.c_void_p(context), action, number, 0), call)
    _check(library.seccomp_load(ctypes.c_void_p(context)), "seccomp_load")


def _seccomp_library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        return None
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_init.argtypes = [ctypes.c_uint32]
    library.seccomp_rule_add.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint]
    return library


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno() or -result
        raise OSError(number, f"{what}: {os.strerror(number)}")
