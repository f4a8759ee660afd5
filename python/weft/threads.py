"""Threads for tasks that may wait, such as users' callbacks.

[Note: Callbacks may block] A callback may wait for another operation: PowerSGD's does. So callbacks
must not run on weft's progress thread, and a callback that blocks must not delay other futures.
Therefore an idle thread, or a new one, waits for every operation whose future was requested.
"""

from __future__ import annotations

import atexit
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft import _weft

__all__ = ["Threads"]

_STOP_SECONDS_MAX = 1.0


class Threads:
    """Runs tasks, each on an idle thread or on a new one."""

    def __init__(self, name: str) -> None:
        """`name` is a part of the threads' names."""
        self._name = name
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        atexit.register(self._stop)

    def run(self, task: Callable[[], None]) -> None:
        """Runs `task`, which must not raise."""
        with self._lock:
            self._tasks.put(task)
            if self._idle > 0:
                self._idle -= 1
                return
            thread = threading.Thread(target=self._serve, name=f"weft-{self._name}-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
        thread.start()

    def when_ended(self, operation: _weft.Work, task: Callable[[], None]) -> None:
        """Runs `task`, which must not raise, once an operation has ended."""

        def wait_and_run() -> None:
            with contextlib.suppress(Exception):  # the result's reader gets it
                operation.wait(None)
            task()

        self.run(wait_and_run)

    def _serve(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
            del task  # its references, to tensors for instance, would live until the next one
            with self._lock:
                self._idle += 1

    def _stop(self) -> None:
        # A thread that returns from native code while the interpreter shuts down would be killed in
        # the middle of it.
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join(_STOP_SECONDS_MAX)
