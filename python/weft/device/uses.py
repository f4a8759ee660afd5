"""A count of the threads that use something, which is destroyed after the last of them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

__all__ = ["Uses"]


class Uses:
    """The threads that use a pipeline's streams and events, without a lock that they would hold."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._users = 0
        self._ended = False

    @contextlib.contextmanager
    def one(self) -> Iterator[bool]:
        """Yields whether they may be used in the block: they are not destroyed before its end."""
        with self._changed:
            usable = not self._ended
            self._users += usable
        try:
            yield usable
        finally:
            with self._changed:
                self._users -= usable
                self._changed.notify_all()

    def end(self) -> None:
        """Admits no further thread, and returns when none is left."""
        with self._changed:
            self._ended = True
            self._changed.wait_for(lambda: self._users == 0)
