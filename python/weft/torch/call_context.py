"""How operations of a block of code are called: their priority and their wire format."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

__all__ = ["keywords", "within", "within_block"]

within: ContextVar[dict[str, Any] | None] = ContextVar("weft keywords of calls", default=None)
"""What blocks of code give the operations that this thread starts; None where there is none."""


@contextlib.contextmanager
def within_block(**given: Any) -> Iterator[None]:
    """Gives the operations that this thread starts in the block these keywords."""
    token = within.set({**(within.get() or {}), **given})
    try:
        yield
    finally:
        within.reset(token)


def keywords(default: dict[str, Any]) -> dict[str, Any]:
    """What an operation that this thread starts in a group with this default is called with."""
    given = within.get()
    return default if given is None else {**default, **given}
