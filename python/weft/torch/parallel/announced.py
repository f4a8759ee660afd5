"""Updates that a watcher learns of before they change anything."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from torch.optim import Optimizer

__all__ = ["Watcher", "announced", "watch_updates"]


class Watcher(Protocol):
    """An object that must know what the updates of an optimizer change."""

    def before_update(self, parameters: Sequence[Any], groups: Sequence[Mapping[str, Any]], /) -> None:
        """Called before an update of these parameters and of their state.

        `groups` are the optimizer's groups in this update, with those that have a gradient.
        """

    def after_update(self, parameters: Sequence[Any], /) -> None:
        """Called after it, also if it has failed."""


_watchers: weakref.WeakKeyDictionary[Optimizer, weakref.ref[Watcher]] = weakref.WeakKeyDictionary()


def watch_updates(optimizer: Optimizer, watcher: Watcher | None) -> None:
    """Announces the updates of `Overlapped` around an optimizer to a watcher; to none if None."""
    if watcher is None:
        _watchers.pop(optimizer, None)
    else:
        _watchers[optimizer] = weakref.ref(watcher)


@contextlib.contextmanager
def announced(optimizer: Optimizer, parameters: Sequence[Any], groups: Sequence[Mapping[str, Any]]) -> Iterator[None]:
    """A block that updates parameters: see `Watcher`."""
    reference = _watchers.get(optimizer)
    watcher = None if reference is None else reference()
    if watcher is None:
        yield
        return
    watcher.before_update(parameters, groups)
    try:
        yield
    finally:
        watcher.after_update(parameters)
