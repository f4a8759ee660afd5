"""Handles of operations in progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from weft import _weft
from weft.errors import StillRunning

if TYPE_CHECKING:
    from weft.device.operation import DeviceOperation

__all__ = ["Work"]

T = TypeVar("T")


class Work(Generic[T]):
    """An operation that has been started.

    Until it has ended, do not write its arrays, nor read its output. If an array is not contiguous,
    its result is copied into it by `wait`. Dropping the handle does not stop the operation, and
    weft keeps its arrays alive.
    """

    __slots__ = ("_finish", "_native", "_result")

    def __init__(self, native: _weft.Work | DeviceOperation, finish: Callable[[Any], T]) -> None:
        self._native = native
        self._finish: Callable[[Any], T] | None = finish
        self._result: T | None = None

    def wait(self, timeout: float | None = None) -> T:
        """Waits until the operation has ended, and returns its result.

        Args:
            timeout: Seconds to wait; with None, until the operation ends or fails at its own
                deadline.

        Raises:
            StillRunning: `timeout` seconds have passed; the operation continues, and can be waited
                for again.
            weft.PeerLost: A rank ended or cannot be reached.
            weft.Timeout: The operation did not end in time.
            weft.Error: The operation failed for another reason.
        """
        if not self._native.wait(timeout):
            raise StillRunning(
                f"the wait timed out: the operation has not ended within its timeout of {timeout} s; "
                "it continues, wait again for its result"
            )
        if self._finish is not None:
            self._result = self._finish(self._native)
            self._finish = None
        return self._result  # type: ignore[return-value]  # set above, by this call or an earlier one

    @property
    def done(self) -> bool:
        """Whether the operation has ended, well or badly: `wait` will not block."""
        return self._native.is_done()

    def __repr__(self) -> str:
        return f"<weft.Work {'done' if self.done else 'under way'}>"
