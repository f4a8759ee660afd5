"""Instruction counts by single-stepping: one rank stepped through a call, the others running free.

They are always ahead of it, so that it never waits, and the number does not depend on the machine's
speed or load: the least of several calls is reported. Where the call begins and ends in the loop of
`ControlBlock.time` is known by the clock, which is read just before and just after it. The clock's
code is the kernel's, in a mapping of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

_SINGLE_STEP, _DETACH, _PEEK_USER = 9, 17, 3
_INSTRUCTION_POINTER_AT = 16 * 8
"""In the registers of x86-64."""
_READINGS_BEFORE = 2
"""How often the loop reads the clock before a call: on coming to the barrier, and to begin."""
_DEADLINE_S = 60

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


class SteppingError(RuntimeError):
    """The process cannot be stepped through."""


def count(pid: int) -> int:
    """The instructions of the one call that a process makes between its two own stops.

    The process is a child of the calling one, and is traced by it. It is let go afterwards.
    """
    if platform.machine() != "x86_64":
        raise SteppingError(f"steps are counted on x86-64 only, not on {platform.machine()}")
    with _deadline():
        clock = _clock(pid)
        _await_stop(pid)
        readings = _readings(pid, clock)
        _ptrace(_DETACH, pid)
    if len(readings) <= _READINGS_BEFORE:
        raise SteppingError(f"the clock was read {len(readings)} times: the kernel's code for it is not used here")
    return readings[-1].start - readings[_READINGS_BEFORE - 1].stop


def _readings(pid: int, clock: range) -> list[range]:
    """When the clock was read, in instructions since the first stop, until the second."""
    readings: list[range] = []
    steps = 0
    begin: int | None = None
    while True:
        _ptrace(_SINGLE_STEP, pid)
        if _await_stop(pid) == signal.SIGSTOP:
            return readings
        steps += 1
        inside = _libc.ptrace(_PEEK_USER, pid, _INSTRUCTION_POINTER_AT, None) in clock
        if inside and begin is None:
            begin = steps
        elif not inside and begin is not None:
            readings.append(range(begin, steps))
            begin = None


def _await_stop(pid: int) -> int:
    """The signal that the process has stopped with."""
    _, status = os.waitpid(pid, 0)
    if not os.WIFSTOPPED(status):
        raise SteppingError(f"a process has ended with status {os.waitstatus_to_exitcode(status)}")
    stop = os.WSTOPSIG(status)
    if stop not in (signal.SIGTRAP, signal.SIGSTOP):
        raise SteppingError(f"a process was stopped by {signal.Signals(stop).name}")
    return stop


def _clock(pid: int) -> range:
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if line.endswith("[vdso]"):
            begin, _, end = line.split()[0].partition("-")
            return range(int(begin, 16), int(end, 16))
    raise SteppingError("the kernel maps no code for the clock into processes")


def _ptrace(request: int, pid: int) -> None:
    if _libc.ptrace(request, pid, None, None) == -1:
        raise SteppingError(f"this process may not step through others ({os.strerror(ctypes.get_errno())})")


@contextlib.contextmanager
def _deadline() -> Iterator[None]:
    def on_alarm(_number: int, _frame: FrameType | None) -> None:
        raise SteppingError(f"not at the end after {_DEADLINE_S} s")

    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(_DEADLINE_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
