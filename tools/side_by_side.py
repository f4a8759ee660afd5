"""Series of make targets that run side by side (`make test`), with the output of each in one piece.

`python -m tools.side_by_side "fmt-check lint" test-torch` runs two series: `lint` behind
`fmt-check`, and `test-torch` meanwhile. The first target that fails ends the others, and its output
is printed last. One that hangs is interrupted, and has failed. The extension must be there: no
target builds it again while others use it.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO

__all__ = ["EndedTarget", "run"]

_ENDING_S = 20.0
"""The time for a target to end after an interrupt, at which pytest stops its processes."""

_LIMIT_S = 2400.0
"""The time of a target, of which the longest takes 1400 s: one that hangs ends before CI does."""


@dataclass(frozen=True)
class EndedTarget:
    """The end of a target, with its output."""

    name: str
    status: int
    seconds: float
    output: str


def main() -> int:
    """Runs the series that the arguments are; 1 if a target failed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    ended = run([argument.split() for argument in sys.argv[1:]], _make)
    for target in ended:
        print(f"{target.seconds:6.0f} s  {target.name}{'' if target.status == 0 else ': FAILED'}", flush=True)
    return 1 if any(target.status != 0 for target in ended) else 0


def _make(target: str) -> list[str]:
    return ["make", "--no-print-directory", "--old-file=extension", target]


def run(
    series: Sequence[Sequence[str]], command: Callable[[str], Sequence[str]], limit_s: float = _LIMIT_S
) -> list[EndedTarget]:
    """Runs `command(target)` for the targets of each series in turn, and all series side by side.

    A target that still runs after `limit_s` seconds is interrupted, and has failed. Prints the
    output of every target when it has ended, but none of those that are stopped because another has
    failed. Returns those that were printed, in the order in which they ended.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # A job in the background of a shell ignores interrupts, and so would all that it starts.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    running = _RunningTargets()
    results: queue.Queue[EndedTarget | None] = queue.Queue()
    threads = [
        threading.Thread(target=_run_one_series, args=(one, command, limit_s, running, results)) for one in series
    ]
    for thread in threads:
        thread.start()
    ended: list[EndedTarget] = []
    try:
        left = len(threads)
        while left > 0:
            target = results.get()
            if target is None:
                left -= 1
                continue
            _print(target)
            ended.append(target)
            if target.status != 0:
                break
    finally:
        with _without_signals():
            running.stop()
            for thread in threads:
                thread.join()
    return ended


@contextlib.contextmanager
def _without_signals() -> Iterator[None]:
    """While targets are ended, a second signal must not leave some of them behind."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run_one_series(
    series: Sequence[str],
    command: Callable[[str], Sequence[str]],
    limit_s: float,
    running: _RunningTargets,
    results: queue.Queue[EndedTarget | None],
) -> None:
    for name in series:
        began = time.monotonic()
        with tempfile.TemporaryFile() as output:
            process = running.start(command(name), output)
            if process is None:
                return
            print(f"==== {name}: begins", flush=True)
            try:
                status = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                _end([process])
                print(f"==== {name}: interrupted after {limit_s:.0f} s", flush=True)
                status = process.returncode or 1
            seconds = time.monotonic() - began
            output.seek(0)
            results.put(EndedTarget(name, status, seconds, output.read().decode(errors="replace")))
        if status != 0:
            return
    results.put(None)


def _print(target: EndedTarget) -> None:
    how = "done" if target.status == 0 else f"FAILED with status {target.status}"
    print(f"==== {target.name}: {how} after {target.seconds:.0f} s", flush=True)
    print(target.output, end="" if target.output.endswith("\n") else "\n", flush=True)


class _RunningTargets:
    """The processes at work. After `stop` there are none, and none is started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._stopped = False

    def start(self, command: Sequence[str], output: IO[bytes]) -> subprocess.Popen[bytes] | None:
        """A process in a process group of its own; None once they are stopped."""
        with self._lock:
            if self._stopped:
                return None
            # In the same session, so that `nice` counts between them: where the kernel groups
            # processes by session, it counts only within one.
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, process_group=0
            )
            self._processes.append(process)
            return process

    def stop(self) -> None:
        """Interrupts those that run, and kills those that do not end in time."""
        with self._lock:
            self._stopped = True
            at_work = [process for process in self._processes if process.poll() is None]
        _end(at_work)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Interrupts the groups of these processes, and kills those that do not end in time."""
    for number, seconds in ((signal.SIGINT, _ENDING_S), (signal.SIGKILL, None)):
        ends = None if seconds is None else time.monotonic() + seconds
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(None if ends is None else max(0.0, ends - time.monotonic()))


if __name__ == "__main__":
    sys.exit(main())
