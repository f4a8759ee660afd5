"""A device's two copy queues: streams to and from the host, and events that order them."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable

from weft.device.driver import Driver
from weft.device.event import Event
from weft.device.memory import Word, Words
from weft.device.step import Failing, aside
from weft.device.streams import Streams
from weft.device.uses import Uses
from weft.errors import DeviceError

__all__ = ["CopyQueues", "QueuesOfDevices"]

_LOOKS_S = 0.2
"""Seconds between looks at a device that makes the host wait."""


class CopyQueues:
    """A stream for each direction, so that both copy engines work at the same time."""

    def __init__(self, driver: Driver, device: int, streams: Streams, word: Word | None) -> None:
        """`word` is one that only the stream to the host writes."""
        self.device = device
        self._driver = driver
        self._streams = streams
        self.to_host, self.to_device = streams.take(driver, device), streams.take(driver, device)
        self._events: list[int] = []
        self._unused: list[int] = []
        self._arrived = 0
        self._word = word

    def record(self, stream: int) -> Event:
        """An event that happens when all work in the stream is complete.

        It is a new one: a thread that waits for it does not wait for later work.
        """
        try:
            handle = self._unused.pop()
        except IndexError:
            handle = self._driver.new_event()
            self._events.append(handle)
        event = Event(handle, self._unused)
        self._driver.record(handle, stream)
        return event

    def begin_after(self, stream: int) -> None:
        """Makes later work in both queues begin after the work in `stream`."""
        event = self.record(stream)
        self._driver.wait_for_event(self.to_host, event.handle)
        self._driver.wait_for_event(self.to_device, event.handle)

    @property
    def reports(self) -> bool:
        """Whether `arrival` calls no driver: its memory could be registered."""
        return self._word is not None

    def arrival(self) -> Callable[[float], bool]:
        """Waits for the copies to the host that were started, in a function.

        It returns False if they are not complete after some seconds, if it calls no driver.
        """
        if self._word is None:
            return functools.partial(self._wait_for, self.record(self.to_host))
        self._report(self._word)
        return functools.partial(self._word.wait, self._arrived)

    def arrival_word(self) -> tuple[int, int]:
        """The address and the value of a word that the stream sets when `arrival` would return.

        The memory of words could be registered: see `reports`.
        """
        assert self._word is not None
        self._report(self._word)
        return self._word.address, self._arrived % 2**32

    def _report(self, word: Word) -> None:
        self._arrived += 1
        self._driver.write_value(self.to_host, word.device_address, self._arrived % 2**32)

    def _wait_for(self, event: Event, _: float) -> bool:
        with self._driver.on(self.device):
            self._driver.synchronize_event(event.handle)
        return True

    def synchronize(self) -> None:
        """Returns when no work is under way."""
        with self._driver.on(self.device):
            self._driver.synchronize_stream(self.to_host)
            self._driver.synchronize_stream(self.to_device)

    def check(self) -> None:
        """Raises the device's error, if it carries out nothing more."""
        with self._driver.on(self.device):
            self._driver.check_stream(self.to_host)

    def close(self) -> None:
        """Destroys the events, and the streams that were made here. Nothing may be under way."""
        with self._driver.on(self.device):
            for handle in self._events:
                self._driver.destroy_event(handle)
            self._events.clear()
        for stream in (self.to_host, self.to_device):
            self._streams.give_back(self._driver, self.device, stream)


class QueuesOfDevices:
    """The queues of all devices of a process, for one purpose of one group."""

    def __init__(self, driver: Driver, streams: Streams, words: Words, group: Failing, uses: Uses) -> None:
        """`group` fails with the device; `uses` counts the threads that use these queues."""
        self.uses = uses
        self._words = words
        self._driver = driver
        self._streams = streams
        self._group = group
        self._queues: dict[int, CopyQueues] = {}
        self._making = threading.Lock()
        self._looking = threading.Lock()

    def of(self, device: int) -> CopyQueues:
        """The queues of a device."""
        with self._making:
            if device not in self._queues:
                self._queues[device] = CopyQueues(self._driver, device, self._streams, self._words.take())
            return self._queues[device]

    def arrival(self, queues: CopyQueues) -> Callable[[], None]:
        """A function that returns when the copies to the host that were started are complete.

        It raises if the device or the group fails meanwhile.
        """
        arrival = queues.arrival()

        def arrive() -> None:
            while not arrival(_LOOKS_S):
                failure = self._group.failure
                if failure is not None:
                    raise failure
                self.look(queues)

        return arrive

    def synchronize(self) -> None:
        """Returns when no work is under way."""
        for queues in self._queues.values():
            with contextlib.suppress(DeviceError):  # a broken device copies nothing
                queues.synchronize()

    def close(self) -> None:
        """Destroys all queues. Nothing may be under way."""
        for queues in self._queues.values():
            with contextlib.suppress(DeviceError):
                queues.close()
        self._queues.clear()

    def look(self, queues: CopyQueues) -> None:
        """Lets another thread ask whether the device still works; if not, everything fails."""

        def ask() -> None:
            with self._looking, self.uses.one() as usable:
                if not usable:
                    return
                try:
                    queues.check()
                except DeviceError as error:
                    self._group.fail(error)

        if not self._looking.locked():
            aside(ask)
