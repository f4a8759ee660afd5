"""Functions of the program that run when a group fails, before torch ends it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.output.logs import LOGGER

if TYPE_CHECKING:
    from weft import _weft

__all__ = ["AbortHooks"]


class AbortHooks:
    """The abort hooks of a backend: each runs once, before an abort, or when the group has failed.

    A caller of `run` returns when all hooks have ended, also those that another thread runs: the
    process may end after an abort, and must not while a hook writes what it has captured.
    """

    def __init__(self, group: _weft.Group) -> None:
        self._hooks: dict[int, Callable[[], None]] = {}
        # Reentrant, because a hook may abort the group.
        self._running = threading.RLock()
        group.on_failure(lambda _: self.run())

    def register(self, hook_id: int, hook: Callable[[], None]) -> None:
        """Adds a hook under a number, in place of one that has it already."""
        self._hooks[hook_id] = hook

    def unregister(self, hook_id: int) -> None:
        """Removes a hook, if it has not run yet."""
        self._hooks.pop(hook_id, None)

    def run(self) -> None:
        """Runs the hooks in the order of their numbers."""
        with self._running:
            for hook_id in sorted(self._hooks):
                hook = self._hooks.pop(hook_id, None)  # another hook may have removed it
                try:
                    if hook is not None:
                        hook()
                except Exception:
                    LOGGER.exception("abort hook %d has failed", hook_id)
