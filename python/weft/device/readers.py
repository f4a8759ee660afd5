"""Streams for readers of results, such as torch's futures."""

from __future__ import annotations

import dataclasses
import threading
import weakref

from weft.device.driver import Driver
from weft.device.operation import DeviceOperation
from weft.device.streams import Streams

__all__ = ["ReaderStreams"]


@dataclasses.dataclass(slots=True)
class _Reader:
    stream: int
    device: int
    queues: weakref.ref[object]
    number: int
    """Of the last operation of these queues that the stream has waited for."""


class ReaderStreams:
    """Streams in which results are seen, and nothing that was called later than the operation.

    What is recorded in the streams of copies would be complete after all operations that have been
    called by then. Operations whose results are asked for in the order of their calls share one.
    """

    def __init__(self, streams: Streams) -> None:
        """`streams` makes them."""
        self._streams = streams
        self._lock = threading.Lock()
        self._readers: list[_Reader] = []

    def after(self, driver: Driver, operation: DeviceOperation) -> int:
        """A stream that waits for an operation's result, and for no later one."""
        with self._lock:
            reader = self._reader(driver, operation)
            operation.let_wait(reader.stream)
            reader.queues, reader.number = weakref.ref(operation.queues), operation.number
            return reader.stream

    def _reader(self, driver: Driver, operation: DeviceOperation) -> _Reader:
        for reader in self._readers:
            queues = reader.queues()
            earlier = queues is operation.queues and reader.number <= operation.number
            if reader.device == operation.device and (queues is None or earlier):
                return reader
        stream = self._streams.take(driver, operation.device)
        self._readers.append(_Reader(stream, operation.device, weakref.ref(operation.queues), 0))
        return self._readers[-1]
