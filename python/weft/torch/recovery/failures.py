"""Errors of a broken group, after which training continues; other errors are the program's."""

from __future__ import annotations

from weft.errors import Aborted, Error, PeerLost, StillRunning, Timeout

__all__ = ["FAILURES", "StateLost", "Superseded", "failure_in"]

FAILURES = (PeerLost, Timeout, Aborted)


class StateLost(Error):
    """The members of a group are newcomers only."""


class Superseded(Error):
    """The training goes on without the members of a group: see [Note: Latest members]."""


def failure_in(error: BaseException) -> str | None:
    """The error of a broken group among an error and its causes."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, FAILURES) and not isinstance(cause, StillRunning):
            return f"{type(cause).__name__}: {cause}"
        cause = cause.__cause__ or cause.__context__
    return None
