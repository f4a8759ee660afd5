"""Groups of an optimizer whose parameters are up to date when they are read.

Schedulers and loggers read and set hyperparameters in every step, which does not wait. Only
`group["params"]`, and copies of the whole group, carry out the pending updates.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, Protocol

from torch.optim import Optimizer

__all__ = ["WatchedGroup", "plain_groups", "plain_parameters", "watch_groups"]


class Flushes(Protocol):
    """Carries out updates: a `Reducer`."""

    watching: bool
    """Whether updates may be pending."""

    def flush(self) -> None:
        """Carries them out."""


if TYPE_CHECKING:  # type checkers do not know that these metaclasses are compatible
    _Group = dict[str, Any]
else:

    class _Group(MutableMapping, dict):
        """A dict whose methods all use its own few."""


class WatchedGroup(_Group):
    """A group that carries out updates before its parameters are read. Copies are plain dicts.

    Its items are those of the dict that it is made of, to which the user may have a reference: an
    item that is set in one is set in both.
    """

    def __init__(self, plain: dict[str, Any], reducer: Flushes) -> None:
        super().__init__()  # the dict's own memory stays empty
        self.plain = plain
        self._reducer = weakref.ref(reducer)

    def belongs_to(self, reducer: Flushes) -> bool:
        """Whether it carries out the updates of this one."""
        return self._reducer() is reducer

    def __getitem__(self, key: str) -> Any:
        if key == "params":
            reducer = self._reducer()
            if reducer is not None and reducer.watching:
                reducer.flush()
        return self.plain[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.plain[key] = value

    def __delitem__(self, key: str) -> None:
        del self.plain[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.plain)

    def __len__(self) -> int:
        return len(self.plain)

    def __contains__(self, key: object) -> bool:
        return key in self.plain

    def __repr__(self) -> str:
        return repr(self.copy())

    def __or__(self, other: Any) -> Any:
        return self.copy() | dict(other)

    def __ror__(self, other: Any) -> Any:
        return dict(other) | self.copy()

    def __ior__(self, other: Any) -> Any:
        self.update(other)
        return self

    def copy(self) -> dict[str, Any]:
        """A plain dict, after all updates."""
        return dict(self.items())

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return copy.deepcopy(self.copy(), memo)

    def __reduce_ex__(self, _: Any) -> tuple[Any, ...]:
        return dict, (self.copy(),)


def watch_groups(optimizer: Optimizer, reducer: Flushes) -> None:
    """Replaces the groups of an optimizer that are not watched by watched ones."""
    groups = optimizer.param_groups
    for place, group in enumerate(groups):
        if not isinstance(group, WatchedGroup):
            groups[place] = WatchedGroup(group, reducer)
        elif not group.belongs_to(reducer):
            groups[place] = WatchedGroup(group.plain, reducer)


def plain_groups(optimizer: Optimizer) -> list[dict[str, Any]]:
    """The plain groups, for callers that do not read the parameters' values."""
    return [group.plain if isinstance(group, WatchedGroup) else group for group in optimizer.param_groups]


def plain_parameters(optimizer: Optimizer) -> list[Any]:
    """The parameters of all groups, in their order, without carrying out updates."""
    return [parameter for group in plain_groups(optimizer) for parameter in group["params"]]
