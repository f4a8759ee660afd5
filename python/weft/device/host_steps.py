"""The hosts' steps between copies to them and copies back, carried out in one order.

[Note: Threads of the steps] One thread carries out all steps in one order, which is the same on all
ranks, in a group that is used for nothing else: it sleeps until the input of a step has arrived,
and starts its operation between the hosts. For a collective of the native layer, it does that
without the interpreter lock, and the thread that ends the collective releases the device. For a
step of Python, a second thread waits for the operation, and releases the device. Where there are
collectives of the native layer, a third one looks at devices that make them wait, and reports the
first failure.

[Note: No driver between arrival and release] A driver may hold a lock of all its calls while one
that frees memory waits for the device, and the device may be waiting for these threads. So they
call no driver, and take no lock that is held during such a call: torch's allocator has one. A
stream reports an arrival by writing a word, and the threads leave it to others to look at the
device, and to drop the last references to its memory. The interpreter lock is such a lock, too, if
an extension module keeps it during a call of the driver; only steps of Python need that.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import logging
import queue
import threading
from abc import abstractmethod
from collections.abc import Iterator

from weft import _weft
from weft.device.message_order import MessageOrder
from weft.device.step import Step, Waitable, aside
from weft.errors import Aborted, Desync, PeerLost, Timeout

__all__ = ["HostSteps"]

_STEPS_MAX = 64
"""The most steps under way. A driver's own queues hold about a thousand entries, and a caller that
filled them would wait inside the driver."""
_KNOWN_TO_ALL = (Aborted, Desync, PeerLost, Timeout)
"""Errors that a broken group reports on all its ranks."""

_log = logging.getLogger("weft")


class HostSteps:
    """The steps of one group, and its first failure, which ends them all, on all ranks."""

    def __init__(self, group: _weft.Group) -> None:
        """`group` is used for nothing else."""
        self.group = group
        self.messages_in_order = MessageOrder(self)
        self.steps = _weft.Steps(_STEPS_MAX)
        self._failure: BaseException | None = None
        self._lock = threading.Lock()
        """Held while an operation is added, and while everything is closed."""
        self._failing = threading.Lock()
        self._closed = False
        self._used_up: collections.deque[list[Step]] = collections.deque()
        """Steps that are to be dropped, each in a list with the only reference to it."""
        self._ending: queue.SimpleQueue[list[Step] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=target, name=f"weft-device-{name}", daemon=True)
            for name, target in (("arrivals", self._begin_steps), ("results", self._end_steps))
        ]

    @property
    def failure(self) -> BaseException | None:
        """Why no operation can be started, if so."""
        return self._failure or self.steps.failure()

    def abort(self, reason: str) -> None:
        """Ends every operation under way, on all ranks."""
        self.group.abort(reason)

    def start(self) -> None:
        """Starts the threads."""
        for thread in self._threads:
            thread.start()

    @contextlib.contextmanager
    def room(self) -> Iterator[None]:
        """Takes room for a step that is to be added, once there is some.

        Gives it back if the block fails.
        """
        self.steps.take_room()
        try:
            yield
        except BaseException:  # also an interrupt
            self.steps.give_room()
            raise

    def fail_in_order(self, error: BaseException) -> None:
        """Makes everything fail after the steps that were added before, which continue."""

        def arrive() -> None:
            raise error

        self.steps.take_room()
        self.steps.put(Step(arrive, lambda: None, lambda _error: None))

    def check(self) -> None:
        """Raises unless operations can be started."""
        if self._closed:
            raise Aborted("the group was closed: no operation can be started")
        failure = self.failure
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Ends the operations under way, frees all memory, and leaves the group."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self.steps.close()
            for thread in self._threads:
                thread.join()
        for _ in range(_STEPS_MAX):
            self.steps.take_room()  # until all steps have ended
        self.messages_in_order.stop()
        self.group.close()  # ends receives that match no message
        self.messages_in_order.join()
        self._end_copies()

    @abstractmethod
    def _end_copies(self) -> None:
        """Frees the memory once all copies are complete."""

    def fail(self, error: BaseException) -> None:
        """Makes all steps that have not begun fail, here and on the other ranks."""
        with self._failing:
            if self.failure is not None:
                return
            self._failure = error
            self.steps.stop()
        self.announce(error)

    def announce(self, error: BaseException) -> None:
        """Logs the first failure, and makes the steps of the other ranks fail."""
        _log.error("operations on device memory of group %s failed: %s", self.group.name, error)
        if not isinstance(error, _KNOWN_TO_ALL):
            self.group.fail(f"rank {self.group.rank} cannot continue with its device: {error}")

    def _begin_steps(self) -> None:
        while (step := self.steps.next()) is not None:
            if self.failure is None:
                try:
                    step.arrive()
                    step.work = step.begin()
                except BaseException as error:
                    self.fail(error)
            begun = [step]
            del step  # it is the list's alone now; its references would live until the next one
            self._ending.put(begun)
        self._ending.put(None)

    def _end_steps(self) -> None:
        while (begun := self._ending.get()) is not None:
            step = begun.pop()
            error = self.failure
            if step.work is not None:
                error = self._ended(step.work)
            if step.calls_driver:
                aside(functools.partial(self._end_step, step, error))
            else:
                self._end_step(step, error)
            self._used_up.append([step])
            del step
            aside(self._drop_used_up)

    def _end_step(self, step: Step, error: BaseException | None) -> None:
        step.end(error)
        self.steps.give_room()

    def _drop_used_up(self) -> None:
        """Drops steps with their references: see [Note: No driver between arrival and release]."""
        with contextlib.suppress(IndexError):  # another thread may drop some
            while True:
                self._used_up.popleft().clear()

    def _ended(self, work: Waitable) -> BaseException | None:
        try:
            work.wait(None)
        except BaseException as error:
            self.fail(error)
            return error
        return None
