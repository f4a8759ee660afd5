"""Priority and wire format of the operations of a block of code."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

__all__ = ["keywords", "within", "within_block"]

within: ContextVar[dict[str, Any] | None] = ContextVar("weft keywords of calls", default=None)
"""The keywords of the operations that this thread starts in blocks of code; None outside of any."""


@contextlib.contextmanager
def within_block(**given: Any) -> Iterator[None]:
    """Sets these keywords for the operations that this thread starts in the block."""
    token = within.set({**(within.get() or {}), **given})
    try:
        yield
    finally:
        within.reset(token)


def keywords(default: dict[str, Any]) -> dict[str, Any]:
    """The keywords of an operation that this thread starts in a group with this default."""
    given = within.get()
    return default if given is None else {**default, **given}
