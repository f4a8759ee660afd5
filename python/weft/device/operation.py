"""The handle of an operation on device memory."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft import _weft
    from weft.device.event import Event
    from weft.device.queues import CopyQueues

__all__ = ["DeviceOperation", "Progress"]


class Progress(Protocol):
    """The executor of operations: the pipeline of a group."""

    @property
    def failure(self) -> BaseException | None:
        """Why no operation can be carried out, if so."""

    def check_wait(self, stream: int, operation: DeviceOperation) -> None:
        """Raises if a stream cannot wait for operations."""

    def let_wait(self, stream: int, operation: DeviceOperation) -> None:
        """Makes a stream wait for the result of an operation."""

    def wait_for(self, operation: DeviceOperation) -> None:
        """Waits until the result is in the device's memory."""

    def has_ended(self, operation: DeviceOperation) -> bool:
        """Whether the result is in the device's memory."""


class DeviceOperation:
    """An operation on device memory.

    All its device work is in streams at the call, unless it is `late`: see [Note: Late copies].
    """

    done: Event | None = None
    """Happens when the result is in the device's memory; None: the device has nothing to do."""

    number = 0
    """Of its last step among those of its queues."""

    def __init__(
        self, pipeline: Progress, queues: CopyQueues, collectives: _weft.HostPart | None = None, *, late: bool = False
    ) -> None:
        """`collectives` are its host's part; None: that is one step of Python."""
        self.queues = queues
        self.device = queues.device
        self.late = late
        self.kept: list[object] = []
        """Owners of memory that a late operation uses after all work in streams is complete."""
        self.collectives = collectives
        self.host_part: _weft.HostPart | threading.Event = collectives or threading.Event()
        """Set when the host has completed its part or failed."""
        self._error: BaseException | None = None
        self._pipeline = pipeline
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []

    @property
    def error(self) -> BaseException | None:
        """The error, if the host's part has failed."""
        if self.collectives is None:
            return self._error
        return self._pipeline.failure if self.collectives.skipped else self.collectives.error()

    def end(self, error: BaseException | None) -> None:
        """Notes that the host has completed its part, which is a step of Python, or failed."""
        assert isinstance(self.host_part, threading.Event)
        self._error = error
        with self._lock:
            self.host_part.set()
        for callback in self._callbacks:
            callback()
        self.kept.clear()

    def keep(self, owner: object) -> None:
        """Keeps the owner of its memory until the host has completed its part."""
        with self._lock:
            if not self.host_part.is_set():
                self.kept.append(owner)

    def wait_on(self, stream: int) -> None:
        """Makes later work in a stream of this device see the result.

        Does not block, unless the operation is late. If it fails later, the stream continues with
        an undefined result, and `wait` and the next operation raise the error.

        Raises:
            weft.Error: The operation has failed.
        """
        self._pipeline.check_wait(stream, self)
        if self.late:
            self.host_part.wait()
        self._check()
        self._pipeline.let_wait(stream, self)

    def let_wait(self, stream: int) -> None:
        """As `wait_on`, without a look at errors, and not for a late operation."""
        self._pipeline.let_wait(stream, self)

    def when_ended(self, callback: Callable[[], object]) -> None:
        """Calls a function when the host has completed its part, or immediately if it has.

        The host's part is a step of Python.
        """
        assert self.collectives is None
        with self._lock:
            if not self.host_part.is_set():
                self._callbacks.append(callback)
                return
        callback()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the result is in the device's memory.

        Returns False if it is not there after `timeout` seconds. Raises the operation's error.
        """
        if not self.host_part.wait(timeout):
            return False
        self._check()
        self._pipeline.wait_for(self)
        return True

    def is_done(self) -> bool:
        """Whether it has ended or failed: `wait` will not block."""
        return self.host_part.is_set() and (self.error is not None or self._pipeline.has_ended(self))

    def _check(self) -> None:
        error = self.error
        if error is None and not self.host_part.is_set():
            error = self._pipeline.failure
        if error is not None:
            raise error
