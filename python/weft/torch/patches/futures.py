"""Waits for futures that weft completes only when their communication hook has returned.

[Note: Waits within hooks] See [Note: Callbacks of hooks] in `weft.torch.communication_thread`: a
hook that waits for a future, or polls it, in its own body would never return. The methods of
`torch._C.Future`, which `torch.futures.wait_all` also uses, are the only place to detect this for
every future, also for one that torch made of weft's by `then` or `collect_all`. They behave as
before, after the futures that the thread's hooks requested have been completed.

torch's own wait also blocks signal handlers, such as that of Ctrl-C. So the main thread, which runs
them, waits in Python first.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["extend_futures"]

_extended = False


def extend_futures(settle: Callable[[Callable[[], bool]], None]) -> None:
    """Extends the methods, the first time: see [Note: Waits within hooks].

    The argument of `settle` is a function that returns whether the future is complete.
    """
    global _extended
    if _extended:
        return
    _extended = True
    is_done = torch._C.Future.done
    original_wait = torch._C.Future.wait

    def done(self: Any) -> bool:
        settle(lambda: is_done(self))
        return is_done(self)

    def wait(self: Any) -> Any:
        settle(lambda: is_done(self))
        if not is_done(self) and threading.current_thread() is threading.main_thread():
            completed = threading.Event()
            torch._C.Future.add_done_callback(self, lambda _: completed.set())
            completed.wait()
        return original_wait(self)

    for name, method in (("done", done), ("wait", wait)):
        setattr(torch._C.Future, name, functools.wraps(getattr(torch._C.Future, name))(method))
