"""A command whose processes all end with it: `python3 tools/supervise.py COMMAND [ARGUMENT ...]`.

`make test` runs in it. However the command ends, or this process, or the process that started it,
nothing that the command started lives on, also if it made a session of its own. This process takes
in orphaned descendants (a subreaper), so it can find them. It needs nothing but the standard
library: it runs before there is a virtual environment.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

__all__ = ["supervise"]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
_ENDING_S = 40.0
"""The time for the command to end after SIGTERM: longer than the wait of `side_by_side`."""


def main() -> int:
    """Runs the command that the arguments are."""
    return supervise(sys.argv[1:])


def supervise(command: Sequence[str]) -> int:
    """Runs a command and ends all of its descendants.

    Returns:
        Its exit status, or 128 and the number of the signal that ended it or this process.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    received: list[int] = []
    process: list[int] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        if process and len(received) == 1:
            os.kill(process[0], signal.SIGTERM)
            signal.setitimer(signal.ITIMER_REAL, _ENDING_S)

    for number in _SIGNALS:
        signal.signal(number, forward)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(process[0], signal.SIGKILL))
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    # Popen would wait for its own child only: here every ended child is collected.
    process.append(subprocess.Popen(command, preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)).pid)
    if received:
        os.kill(process[0], signal.SIGTERM)
    try:
        status = _collect(lambda pid: pid == process[0])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        _kill_descendants()
    if received:
        return 128 + received[0]
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _collect(is_awaited: Callable[[int], bool]) -> int:
    """Collects children until the awaited one has ended; its status."""
    while True:
        pid, status = os.wait()
        if is_awaited(pid):
            return status


def _kill_descendants() -> None:
    """Kills and collects children until there are none: those of killed ones become ours."""
    while True:
        for pid in _children():
            os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.01)


def _children() -> list[int]:
    """This process's children."""
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


if __name__ == "__main__":
    sys.exit(main())
