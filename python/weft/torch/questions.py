"""Answers to what torch asks of a backend: what it can do, and what has gone wrong."""

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
    """Lets a backend's class say "no" for each capability of which it says nothing itself.

    torch's own class asks the Python half, which has nothing but torch's own answer:
    RecursionError. So each property needs an answer, also one that a later torch adds.
    """
    for name in dir(Backend):
        asked = name.startswith(_CAPABILITY) and isinstance(getattr(Backend, name), property)
        if asked and name not in vars(backend):
            setattr(backend, name, False)
    return backend


def check_not_reconfigured(options: Any) -> None:
    """Raises `weft.UnsupportedError` for a group whose members are to be named later."""
    if getattr(options, "enable_reconfigure", False):
        raise UnsupportedError(
            "enable_reconfigure=True is not supported: weft's groups keep their members. For a group of the ranks "
            "that are left after a failure, call weft.torch.shrink(group), or use weft.torch.Recovery"
        )


class FailureState:
    """How a group ended, as `ErrorType` of torch."""

    def __init__(self, group: _weft.Group) -> None:
        self._error: BaseException | None = None
        group.on_failure(self._note)

    def _note(self, error: BaseException) -> None:
        self._error = self._error or error

    def as_torch(self) -> Any:
        """Torch's word for it: `REMOTE_ERROR` for a lost rank, `COMM_ERROR` for other failures."""
        if self._error is None:
            return ErrorType.SUCCESS
        if isinstance(self._error, Timeout):
            return ErrorType.TIMEOUT
        return ErrorType.REMOTE_ERROR if isinstance(self._error, PeerLost) else ErrorType.COMM_ERROR
