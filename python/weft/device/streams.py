"""Streams of weft's own, for copies: not torch's, which hands out the same few again and again."""

from __future__ import annotations

import threading
from typing import Protocol

from weft.device.driver import Driver

__all__ = ["KeptStreams", "OwnStreams", "Streams"]


class Streams(Protocol):
    """Makes streams of devices."""

    def take(self, driver: Driver, device: int) -> int:
        """A stream that nothing else uses."""

    def give_back(self, driver: Driver, device: int, stream: int) -> None:
        """Takes a stream back, in which no work is left."""


class OwnStreams:
    """Streams that live as long as they are used."""

    def take(self, driver: Driver, device: int) -> int:
        """See `Streams`."""
        with driver.on(device):
            return driver.new_stream()

    def give_back(self, driver: Driver, device: int, stream: int) -> None:
        """See `Streams`."""
        with driver.on(device):
            driver.destroy_stream(stream)


class KeptStreams:
    """Streams that live as long as the process: an allocator may record events in them later."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unused: dict[int, list[int]] = {}

    def take(self, driver: Driver, device: int) -> int:
        """See `Streams`."""
        with self._lock:
            unused = self._unused.setdefault(device, [])
            if unused:
                return unused.pop()
        return OwnStreams().take(driver, device)

    def give_back(self, driver: Driver, device: int, stream: int) -> None:  # noqa: ARG002
        """See `Streams`."""
        with self._lock:
            self._unused[device].append(stream)
