"""A fair lock, which is acquired in the order of the requests for it."""

from __future__ import annotations

import collections
import threading

__all__ = ["Turns"]


class Turns:
    """Like `threading.Lock`, but fair: a client with many requests does not delay the others."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: collections.deque[threading.Lock] = collections.deque()
        self._taken = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: ARG002  # for `threading.Condition`
        """Waits for the caller's turn."""
        with self._mutex:
            if not self._taken:
                self._taken = True
                return True
            if not blocking:
                return False
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        turn.acquire()
        return True

    def release(self) -> None:
        """Hands the lock to the thread that has waited longest."""
        with self._mutex:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
