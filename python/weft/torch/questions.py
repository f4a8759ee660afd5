"""Answers to torch's queries of a backend: its capabilities, and its failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from torch._C._distributed_c10d import Backend, ErrorType

from weft.errors import PeerLost, Timeout, UnsupportedError

if TYPE_CHECKING:
    from weft import _weft

__all__ = ["FailureState", "answers_capabilities", "check_not_reconfigured"]

_CAPABILITY = ("supports_", "_supports_")
_Class = TypeVar("_Class", bound=type)


def answers_capabilities(backend: _Class) -> _Class:
    """Makes a backend's class answer "no" for each capability that it does not define.

    torch's own class asks the Python half, which has only torch's own answer: RecursionError. So
    each property needs an answer, also one that a later torch adds.
    """
    for name in dir(Backend):
        asked = name.startswith(_CAPABILITY) and isinstance(getattr(Backend, name), property)
        if asked and name not in vars(backend):
            setattr(backend, name, False)
    return backend


def check_not_reconfigured(options: Any) -> None:
    """Raises `weft.UnsupportedError` for a group whose members are named later."""
    if getattr(options, "enable_reconfigure", False):
        raise UnsupportedError(
            "enable_reconfigure=True is for the default group of weft: a group that is split off keeps its members"
        )


class FailureState:
    """The failure of a group, as `ErrorType` of torch."""

    def __init__(self, group: _weft.Group) -> None:
        self._failure = group.failure()

    def as_torch(self) -> Any:
        """The error type: `REMOTE_ERROR` for a lost rank, `COMM_ERROR` for other failures."""
        error = self._failure.error()
        if error is None:
            return ErrorType.SUCCESS
        if isinstance(error, Timeout):
            return ErrorType.TIMEOUT
        return ErrorType.REMOTE_ERROR if isinstance(error, PeerLost) else ErrorType.COMM_ERROR
