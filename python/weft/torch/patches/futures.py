"""Waits for futures that weft completes only when their communication hook has returned.

[Note: Waits within hooks] See [Note: Callbacks of hooks] in `weft.torch.communication_thread`: a
hook that waits for a future, or polls it, in its own body would do so for ever. The methods of
`torch._C.Future`, to which also `torch.futures.wait_all` comes, are the only place that sees this
of every future, also of one that torch made of weft's by `then` or `collect_all`. They do what they
did, after the futures that the thread's hooks asked for have been completed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["extend_futures"]

_METHODS = ("wait", "done")
_extended = False


def extend_futures(settle: Callable[[Callable[[], bool]], None]) -> None:
    """Extends the methods, the first time: see [Note: Waits within hooks].

    `settle` is given what tells whether the future is complete.
    """
    global _extended
    if _extended:
        return
    _extended = True
    is_done = torch._C.Future.done
    for name in _METHODS:
        setattr(torch._C.Future, name, _settling(getattr(torch._C.Future, name), is_done, settle))


def _settling(
    original: Callable[[Any], Any],
    is_done: Callable[[Any], bool],
    settle: Callable[[Callable[[], bool]], None],
) -> Callable[[Any], Any]:
    def method(self: Any) -> Any:
        settle(lambda: is_done(self))
        return original(self)

    method.__name__, method.__doc__ = original.__name__, original.__doc__
    return method
