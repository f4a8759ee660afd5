"""A step of the host between copies to it and copies back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Protocol

from weft.threads import Threads

__all__ = ["Failing", "Step", "Waitable", "aside"]

_threads = Threads("device-aside")


def aside(task: Callable[[], None]) -> None:
    """Runs what may wait for a lock of the driver on another thread. It must not raise."""
    _threads.run(task)


class Failing(Protocol):
    """The operations of a group, which fail as a whole."""

    @property
    def failure(self) -> BaseException | None:
        """Why no operation can be started, if so."""

    def fail(self, error: BaseException) -> None:
        """Makes all steps that have not begun fail, here and on the other ranks."""


class Waitable(Protocol):
    """An operation between the hosts."""

    def wait(self, timeout: None) -> object:
        """Waits until it has ended, and raises its error."""


@dataclasses.dataclass(slots=True)
class Step:
    """The host's work between a copy to it and one back, in Python.

    Its functions may own memory of a device, so dropping them may free that.
    """

    arrive: Callable[[], object]
    """Returns when its input has arrived."""
    begin: Callable[[], Waitable | None]
    """Starts its operation between the hosts."""
    end: Callable[[BaseException | None], object]
    """Releases the device after that operation has ended or failed."""
    calls_driver: bool = False
    """Whether `end` does."""
    work: Waitable | None = None
