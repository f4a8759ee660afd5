"""A device's two copy queues: streams to and from the host, and events that order them."""

from __future__ import annotations

from collections.abc import Callable

from weft.device.driver import Driver

__all__ = ["CopyQueues", "Event", "StreamMaker"]

StreamMaker = Callable[[int], int]
"""Makes a stream of a device, which lives as long as the process."""


class Event:
    """An event that returns to its queues when the last reference to it is dropped."""

    __slots__ = ("_unused", "handle")

    def __init__(self, handle: int, unused: list[int]) -> None:
        self.handle = handle
        self._unused = unused

    def __del__(self) -> None:
        self._unused.append(self.handle)


class CopyQueues:
    """A stream for each direction, so that both copy engines work at the same time."""

    def __init__(self, driver: Driver, device: int, new_stream: StreamMaker | None) -> None:
        """Makes the streams: by `new_stream`, or by the driver, and then ends them in `close`."""
        self.device = device
        self._driver = driver
        self._owns_streams = new_stream is None
        if new_stream is None:
            with driver.on(device):
                self.to_host, self.to_device = driver.new_stream(), driver.new_stream()
        else:
            self.to_host, self.to_device = new_stream(device), new_stream(device)
        self._events: list[int] = []
        self._unused: list[int] = []

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
            if self._owns_streams:
                self._driver.destroy_stream(self.to_host)
                self._driver.destroy_stream(self.to_device)
