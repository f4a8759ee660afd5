"""A device's two copy queues: streams to and from the host, and events to order them by."""

from __future__ import annotations

from collections.abc import Callable

from weft.device.driver import Driver

__all__ = ["CopyQueues", "Event", "StreamMaker"]

StreamMaker = Callable[[int], int]
"""Makes a stream of a device, which lives as long as the process."""


class Event:
    """An event that goes back to its queues when nobody has it any more."""

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
        """An event that happens when all that was put into the stream is done.

        It is no other one's: who waits for it does not wait for what is put in later.
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
        """Lets what is put into both queues begin after what was put into `stream`."""
        event = self.record(stream)
        self._driver.wait_for_event(self.to_host, event.handle)
        self._driver.wait_for_event(self.to_device, event.handle)

    def synchronize(self) -> None:
        """Returns when nothing is under way any more."""
        with self._driver.on(self.device):
            self._driver.synchronize_stream(self.to_host)
            self._driver.synchronize_stream(self.to_device)

    def close(self) -> None:
        """Ends the events, and the streams that were made here. Nothing may be under way."""
        with self._driver.on(self.device):
            for handle in self._events:
                self._driver.destroy_event(handle)
            self._events.clear()
            if self._owns_streams:
                self._driver.destroy_stream(self.to_host)
                self._driver.destroy_stream(self.to_device)
