"""Copies back that are put into a stream when the host has completed its part, not before.

[Note: Late copies] No stream waits for the host: so an operation that cannot end yet holds up
nothing in a stream or in a hardware queue. Before its end there is nothing that a stream could wait
for, so `wait` blocks its caller.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from weft.device.driver import Driver
from weft.device.event import Event
from weft.device.memory import Block, Blocks, DeviceMemory, address_of
from weft.device.operation import DeviceOperation
from weft.device.queues import QueuesOfDevices
from weft.device.step import Failing
from weft.errors import Aborted, DeviceError

__all__ = ["Copied", "LateCopies"]


@dataclasses.dataclass(slots=True)
class Copied:
    """Memory of a device that is being copied to the host."""

    before: Event | None
    """The memory may be written after it."""
    block: Block
    places: Mapping[DeviceMemory, np.ndarray]
    """Its bytes on the host."""
    arrive: Callable[[], object]
    """Returns when they have arrived."""


class LateCopies:
    """Copies in streams of their own, in which nothing waits for the host."""

    def __init__(self, group: Failing, driver: Driver, queues: QueuesOfDevices, blocks: Blocks) -> None:
        """`queues` are used for nothing else."""
        self._group = group
        self._driver = driver
        self._queues = queues
        self._blocks = blocks

    def to_host(
        self,
        operation: DeviceOperation,
        reads: Sequence[DeviceMemory],
        writes: Sequence[DeviceMemory],
        stream: int | None,
    ) -> Copied:
        """Copies `reads` after the work in `stream`, and makes room for `writes`."""
        queues, driver = operation.queues, self._driver
        block, places = self._blocks.take_for([*reads, *writes])
        if not reads:
            before = None if stream is None else queues.record(stream)
            return Copied(before, block, places, lambda: None)
        if stream is not None:
            driver.wait_for_event(queues.to_host, queues.record(stream).handle)
        for memory in reads:
            if memory.nbytes:
                driver.copy_to_host(address_of(places[memory]), memory.address, memory.nbytes, queues.to_host)
        return Copied(queues.record(queues.to_host), block, places, self._queues.arrival(queues))

    def back(self, operation: DeviceOperation, copied: Copied, writes: Sequence[DeviceMemory]) -> BaseException | None:
        """Starts the copies back, with which the operation is done. Returns the error, if any."""
        queues, driver = operation.queues, self._driver
        try:
            with self._queues.uses.one() as usable, driver.on(operation.device):
                if not usable:
                    return Aborted("the group was closed: the operation cannot end")
                if copied.before is not None:
                    driver.wait_for_event(queues.to_device, copied.before.handle)
                for memory in writes:
                    if memory.nbytes:
                        place = copied.places[memory]
                        driver.copy_to_device(memory.address, address_of(place), memory.nbytes, queues.to_device)
                operation.done = copied.block.free_after = queues.record(queues.to_device)
        except DeviceError as error:
            self._group.fail(error)
            return error
        return None
