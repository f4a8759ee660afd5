"""Messages of device memory, which are copied late: see [Note: Late copies]."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np

from weft.device.driver import Driver
from weft.device.late import LateCopies
from weft.device.memory import DeviceMemory
from weft.device.message_order import MessageOrder
from weft.device.operation import DeviceOperation
from weft.device.queues import QueuesOfDevices
from weft.device.step import Step, Waitable

__all__ = ["Begin", "Messages"]

Begin = Callable[[list[np.ndarray], list[np.ndarray]], Waitable]
"""Starts an operation of the hosts, on bytes that were read from a device, and on those that will
be written to it."""


class Messages:
    """The messages of a pipeline's group, with streams of their own."""

    def __init__(self, order: MessageOrder, driver: Driver, queues: QueuesOfDevices, copies: LateCopies) -> None:
        """`queues` are those of `copies`."""
        self._order = order
        self._driver = driver
        self._queues = queues
        self._copies = copies
        self._lock = threading.Lock()
        """Held while a message is added."""

    def send(self, reads: Sequence[DeviceMemory], begin: Begin, operation: DeviceOperation, stream: int | None) -> None:
        """Sends memory, which may be changed again after its copy: streams wait only for that."""
        with self._lock, self._driver.on(operation.device):
            copied = self._copies.to_host(operation, reads, [], stream)
            operation.done = copied.before

            def end(error: BaseException | None) -> None:
                copied.block.free_after = copied.before
                operation.end(error)

            sources = [copied.places[memory] for memory in reads]
            self._order.send(Step(copied.arrive, lambda: begin(sources, []), end))

    def send_in_place(self, begin: Begin, operation: DeviceOperation, stream: int | None) -> None:
        """Sends memory that `begin` reads; it may be changed again when that has ended."""
        with self._lock, self._driver.on(operation.device):
            queues = operation.queues
            if stream is not None:
                self._driver.wait_for_event(queues.to_host, queues.record(stream).handle)
            self._order.send(Step(self._queues.arrival(queues), lambda: begin([], []), operation.end))

    def receive(
        self, writes: Sequence[DeviceMemory], begin: Begin, operation: DeviceOperation, stream: int | None
    ) -> None:
        """Receives into memory, after the work in `stream`."""
        with self._lock, self._driver.on(operation.device):
            copied = self._copies.to_host(operation, [], writes, stream)

            def end(error: BaseException | None) -> None:
                operation.end(error or self._copies.back(operation, copied, writes))

            targets = [copied.places[memory] for memory in writes]
            self._order.receive(Step(copied.arrive, lambda: begin([], targets), end))
