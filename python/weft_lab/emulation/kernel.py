"""Linux system calls missing from Python's standard library."""

import ctypes
import os
import platform
import struct

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000

_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
"""The number of the system call, for which the C library has no function."""
_SCHED_ATTRIBUTES = "IIQiIQQQII"

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Gives the calling process (for PID namespaces: its next children) new namespaces."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def join_namespace(descriptor: int, kind: int) -> None:
    """Moves the calling process (for PID namespaces: its next children) into a namespace."""
    _check(_libc.setns(ctypes.c_int(descriptor), ctypes.c_int(kind)), "setns")


def take_short_turns(slice_s: float) -> None:
    """Requests short turns from the scheduler, for the calling thread and those that it starts.

    Processes that share cores then run again sooner after a wake-up. Has no effect on processors
    whose number for it is not known here, and if the kernel refuses.
    """
    number = _SCHED_SETATTR.get(platform.machine())
    if number is None:
        return
    size = struct.calcsize(_SCHED_ATTRIBUTES)
    attributes = struct.pack(_SCHED_ATTRIBUTES, size, 0, 0, 0, 0, round(slice_s * 1e9), 0, 0, 0, 0)
    _libc.syscall(ctypes.c_long(number), ctypes.c_int(0), ctypes.create_string_buffer(attributes), ctypes.c_uint(0))


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mounts `source` on `target` in the calling process's mount namespace."""
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        options.encode() or None,
    )
    _check(result, f"mount {target}")
