"""Latency of the hosts' lines: a process that delays every frame.

Frames from the hosts go to one TAP device of the switch. The process reads them there, and writes
them to the same device when they are due, from where the switch forwards them. All frames are
delayed equally, so they leave in the order in which they arrived.
"""

import os
import select
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from weft.processes.local_ranks import die_with_parent
from weft_lab.emulation.control import HostControl
from weft_lab.emulation.tap import FRAME_BYTES_MAX


@dataclass
class DelayReport:
    """The cost of delaying, and its precision."""

    frames: int = 0
    """Packets after offloading, of up to 64 KiB."""
    dropped: int = 0
    """Frames that arrived when the queue was full."""
    processor_s: float = 0.0
    """Processor time of the process. In it, the kernel does the receiving hosts' work as well."""
    lasted_s: float = 0.0
    late_s: float = 0.0
    """By how much all frames left too late, added up."""
    late_s_max: float = 0.0

    def __str__(self) -> str:
        """One sentence for the user of the delay."""
        mean_us = 1e6 * self.late_s / max(1, self.frames - self.dropped)
        share = self.processor_s / max(1e-9, self.lasted_s)
        return (
            f"delaying {self.frames} frames took {self.processor_s:.2f} s of processor time ({share:.1%} of one core); "
            f"they left {mean_us:.0f} us late on average, {1e6 * self.late_s_max:.0f} at most; "
            f"{self.dropped} found the queue full"
        )


class LineDelay:
    """The launcher's side of the process."""

    def __init__(self, pid: int, control: HostControl) -> None:
        self._pid = pid
        self.control = control
        """Readable when the process has ended, which it does only on request."""

    @staticmethod
    def start(tap: int, delay_s: float, bytes_max: int) -> "LineDelay":
        """Starts the process, which takes over `tap` and ends with the caller, for any reason.

        It keeps at most `bytes_max` bytes, and drops further frames.
        """
        ours, theirs = HostControl.pair()
        pid = os.fork()
        if pid == 0:
            _run_child(_Queue(tap, delay_s, bytes_max), theirs)
        theirs.close()
        os.close(tap)
        return LineDelay(pid, ours)

    def end(self) -> DelayReport | None:
        """Ends the process; returns None if it had ended before."""
        self.control.send(event="end")
        message = self.control.receive()
        os.waitpid(self._pid, 0)
        return None if message is None else DelayReport(**message)


class _Queue:
    """The frames that wait until they are due."""

    def __init__(self, tap: int, delay_s: float, bytes_max: int) -> None:
        self.tap = tap
        self._delay_s = delay_s
        self._bytes_max = bytes_max
        self._bytes = 0
        self._frames: deque[tuple[float, bytes]] = deque()
        self.report = DelayReport()

    def run_until_readable(self, other: int) -> None:
        """Returns when `other` is readable."""
        while True:
            readable, _, _ = select.select([self.tap, other], [], [], self._time_left())
            if self.tap in readable:
                self._read()
            self._write_what_is_due()
            if other in readable:
                return

    def _time_left(self) -> float | None:
        return max(0.0, self._frames[0][0] - time.monotonic()) if self._frames else None

    def _read(self) -> None:
        frame = os.read(self.tap, FRAME_BYTES_MAX)
        self.report.frames += 1
        if self._bytes + len(frame) > self._bytes_max:
            self.report.dropped += 1
            return
        self._bytes += len(frame)
        self._frames.append((time.monotonic() + self._delay_s, frame))

    def _write_what_is_due(self) -> None:
        report = self.report
        while self._frames:
            due, frame = self._frames[0]
            late = time.monotonic() - due
            if late < 0:
                return
            self._frames.popleft()
            self._bytes -= len(frame)
            report.late_s += late
            report.late_s_max = max(report.late_s_max, late)
            os.write(self.tap, frame)


def _run_child(queue: _Queue, control: HostControl) -> NoReturn:
    try:
        die_with_parent()
        os.setsid()
        _close_all_but({0, 1, 2, queue.tap, control.fileno()})
        # A line does not wait for a processor. If the system refuses, frames are late more often.
        with suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        began = time.monotonic()
        queue.run_until_readable(control.fileno())
        control.receive()  # an unread message would take the report along
        queue.report.processor_s = time.process_time()
        queue.report.lasted_s = time.monotonic() - began
        control.send(**asdict(queue.report))
    except Exception as error:
        print(f"weft hosts: the process that delays the lines failed: {error!r}", file=sys.stderr, flush=True)
    finally:
        os._exit(0)


def _close_all_but(kept: set[int]) -> None:
    for descriptor in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if descriptor not in kept:
            with suppress(OSError):
                os.close(descriptor)
