"""The pipeline of a group: copies to the host, collectives there, copies back, of different tiles.

[Note: Everything is put into streams at the call] The call puts the copies of all tiles, to the
host and back, into the two streams of the device. The device cannot know when the ranks' processors
have reduced a tile. So the stream of the copies back waits for a word of registered memory, by a
stream memory operation, not by a kernel; and the stream of the copies to the host writes one when a
tile has arrived, which the host watches. Thus an operation has an ordinary event at its end as soon
as it is called. A user of the result makes its own stream wait for that event, and CUDA sees the
whole
order: no stream waits for work that is put into another one later. Even a device that carried out
everything in the order of submission would not deadlock.

[Note: Failures drain] When a collective fails, the words of all tiles under way are set as if it
had not failed: streams must never hang, since nothing could end them. The data copied back is
undefined.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from weft import _weft
from weft.datatypes.dtypes import DType
from weft.datatypes.operations import native_operation
from weft.datatypes.ops import Op, PremulSum
from weft.device.driver import Driver
from weft.device.event import Event
from weft.device.host_steps import HostSteps
from weft.device.late import LateCopies
from weft.device.memory import Block, Blocks, DeviceMemory, Flags, Registered, address_of
from weft.device.messages import Begin, Messages
from weft.device.operation import DeviceOperation
from weft.device.placement import memory_at, node_of
from weft.device.queues import CopyQueues, QueuesOfDevices, StreamMaker
from weft.device.step import Step, Waitable
from weft.device.uses import Uses
from weft.errors import DeviceError, UnsupportedError

__all__ = ["SLOTS", "Pipeline"]

SLOTS = 8
"""The number of tiles with memory, and so the most between device and device."""
_ELEMENTS = 128
"""Tiles are multiples of this many elements: blocks of the wire formats have this many."""

_PAGE_BYTES = 4096


class RankGroup(Protocol):
    """The methods of a `weft.Group` that a pipeline uses."""

    @property
    def native(self) -> _weft.Group:
        """The group of the native layer."""

    def symmetric(self, shape: int, dtype: type[np.generic], *, signals: int, name: str) -> Any:
        """Memory that all ranks of a host reach."""

    def all_gather(self, x: NDArray[Any]) -> NDArray[Any]:
        """The arrays of all ranks."""


class Pipeline(HostSteps):
    """All operations of one group on device memory, of any device of this process."""

    def __init__(
        self,
        group: RankGroup,
        driver: Driver,
        device: int,
        tile_bytes: int,
        new_stream: StreamMaker | None = None,
        timeout: float | None = None,
    ) -> None:
        """Makes the memory that ranks share, of `SLOTS` tiles. Every rank of the group calls it.

        Args:
            group: A group that is used for nothing else. It is closed with the pipeline.
            driver: The driver.
            device: This rank's first device.
            tile_bytes: The size of a tile, of at least a page, the same on all ranks.
            new_stream: Makes streams for copies; by default the driver does.
            timeout: Seconds that each collective may take; the group's by default.

        Raises:
            weft.UnsupportedError: A rank's driver refuses to register host memory, or stream memory
                operations.
        """
        super().__init__(group.native)
        self._driver = driver
        self._tile_bytes = tile_bytes // _PAGE_BYTES * _PAGE_BYTES
        self._timeout = timeout
        self._uses = Uses()
        self._queues, self._late_queues = (QueuesOfDevices(driver, new_stream, self, self._uses) for _ in range(2))
        self._steps = 0
        self._tiles_put = 0
        """The same number on all ranks, so that a tile has the same slot on all of them."""
        self._emptied: list[Event | None] = [None] * SLOTS
        self._held: collections.deque[tuple[DeviceOperation, object]] = collections.deque()
        with memory_at(node_of(driver, device)):
            shared = group.symmetric(SLOTS * self._tile_bytes, np.uint8, signals=0, name="device tiles")
        self._agree(group, self._register(device, np.asarray(shared)))
        self.start()

    # Operations.

    def all_reduce(
        self,
        memory: DeviceMemory,
        dtype: DType,
        op: Op | PremulSum,
        *,
        device: int,
        stream: int | None,
        timeout: float | None = None,
        how: Mapping[str, Any] | None = None,
        hold: object = None,
    ) -> DeviceOperation:
        """Replaces every rank's memory by the reduction of all ranks' memory.

        Args:
            memory: Elements of `dtype`.
            dtype: Their type.
            op: See `weft.Group.all_reduce`.
            device: The device of the memory.
            stream: The operation begins after the work in this stream; None: immediately.
            timeout: Seconds that each tile's collective may take.
            how: Further keywords of `weft.api.collectives.CallKeywords`.
            hold: The owner of the memory, kept until the operation has ended.

        Raises:
            weft.Error: An earlier operation has failed, or this one is not possible.
        """
        tile = max(self._tile_bytes // dtype.itemsize // _ELEMENTS, 1) * _ELEMENTS * dtype.itemsize
        parts = [
            DeviceMemory(memory.address + start, min(tile, memory.nbytes - start))
            for start in range(0, memory.nbytes, tile)
        ]
        # Checks type and operation before anything is under way.
        kind = native_operation("all-reduce", dtype.name, dtype.itemsize, op)
        keywords = dict(how or {})
        limit = self._timeout if timeout is None else timeout

        def begin(slot: int, nbytes: int) -> Callable[[], _weft.Work]:
            elements, address = nbytes // dtype.itemsize, self._slot(slot)
            request = _weft.Request(kind, elements, None, address)
            return lambda: self.group.issue(request, self._tiles, True, limit, **keywords)

        operation = self._put(device, stream, len(parts), lambda operation: self._put_tiles(operation, parts, begin))
        self._keep(operation, hold)
        return operation

    def send(
        self, memory: DeviceMemory, to: int, tag: int, *, device: int, stream: int | None
    ) -> DeviceOperation | None:
        """Sends memory that an RDMA adapter reads in place; None if no adapter does now.

        It ends when the memory may be changed again. `device` and `stream` are as in `on_host`.
        """
        if not self.group.reads_device(to, *memory):
            return None

        def begin(_: list[np.ndarray], __: list[np.ndarray]) -> _weft.Work:
            work = self.group.send_from_device(to, tag, *memory, self._timeout)
            if work is not None:
                return work
            copy = np.empty(memory.nbytes, np.uint8)  # its registration has ended since
            self._driver.read(address_of(copy), *memory, device)
            return self.group.send(to, tag, address_of(copy), memory.nbytes, self._timeout, copy)

        operation = self._message(device, stream, late=True)
        self._messages.send_in_place(begin, operation, stream)
        return operation

    def message(
        self,
        reads: Sequence[DeviceMemory],
        writes: Sequence[DeviceMemory],
        begin: Begin,
        *,
        device: int,
        stream: int | None,
    ) -> DeviceOperation:
        """Sends `reads`, or receives into `writes`, as `begin` does on bytes of the host.

        The arguments are as in `on_host`. See [Note: Messages have an order of their own].
        """
        operation = self._message(device, stream, late=bool(writes))
        if writes:
            self._messages.receive(writes, begin, operation, stream)
        else:
            self._messages.send(reads, begin, operation, stream)
        return operation

    def on_host(
        self,
        reads: Sequence[DeviceMemory],
        writes: Sequence[DeviceMemory],
        begin: Begin,
        *,
        device: int,
        stream: int | None,
    ) -> DeviceOperation:
        """Copies memory to the host, runs an operation there, and copies memory back.

        Args:
            reads: Memory that is copied to the host.
            writes: Memory that is copied back; memory that is also in `reads` is one piece there.
            begin: Starts the operation, on bytes of the host for each of `reads` and `writes`.
            device: The device of the memory.
            stream: The operation begins after the work in this stream; None: immediately.
        """

        def put(operation: DeviceOperation) -> list[Block]:
            block, places = self._blocks.take_for([*reads, *writes])
            self._put_step(operation, reads, writes, places, begin)
            return [block]

        return self._put(device, stream, 1, put)

    def queues_of(self, device: int) -> CopyQueues:
        """The copy queues of a device."""
        return self._queues.of(device)

    # The interface for handles.

    def let_wait(self, stream: int, operation: DeviceOperation) -> None:
        """Makes a stream wait for the result of an operation."""
        with self._uses.one() as usable, self._driver.on(operation.device):
            if usable and operation.done is not None:
                self._driver.wait_for_event(stream, operation.done.handle)

    def wait_for(self, operation: DeviceOperation) -> None:
        """Waits for the copies of an operation whose host part is complete."""
        with self._uses.one() as usable, self._driver.on(operation.device):
            if usable and operation.done is not None:
                self._driver.synchronize_event(operation.done.handle)

    def has_ended(self, operation: DeviceOperation) -> bool:
        """Whether all copies of an operation are complete."""
        with self._uses.one() as usable, self._driver.on(operation.device):
            return not usable or operation.done is None or self._driver.has_happened(operation.done.handle)

    def _end_copies(self) -> None:
        for queues in (self._queues, self._late_queues):
            queues.synchronize()
        self._uses.end()
        self._release()

    def _keep(self, operation: DeviceOperation, hold: object) -> None:
        while self._held and self._held[0][0].is_done():
            self._held.popleft()
        if hold is not None:
            self._held.append((operation, hold))

    # Submission to the streams.

    def _message(self, device: int, stream: int | None, *, late: bool) -> DeviceOperation:
        self._check(stream)
        return DeviceOperation(self, self._late_queues.of(device), 1, late=late)

    def _put(
        self, device: int, stream: int | None, steps: int, put: Callable[[DeviceOperation], list[Block]]
    ) -> DeviceOperation:
        with self._lock, self._driver.on(device):
            self._check(stream)
            queues = self.queues_of(device)
            operation = DeviceOperation(self, queues, steps)
            try:
                if stream is not None:
                    queues.begin_after(stream)
                blocks = put(operation)
                operation.done = queues.record(queues.to_device)
            except BaseException as error:  # an interrupt, too, leaves tiles without their copies back
                self.fail_in_order(error)
                raise
            for block in blocks:
                block.free_after = operation.done
        return operation

    def _put_tiles(
        self,
        operation: DeviceOperation,
        parts: list[DeviceMemory],
        begin: Callable[[int, int], Callable[[], Waitable]],
    ) -> list[Block]:
        """See [Note: Everything is put into streams at the call]."""
        queues, driver = operation.queues, self._driver
        for first in range(0, len(parts), SLOTS):
            batch = []
            for part in parts[first : first + SLOTS]:
                number = self._take_number()
                slot = self._tiles_put % SLOTS
                self._tiles_put += 1
                emptied = self._emptied[slot]
                if emptied is not None:
                    driver.wait_for_event(queues.to_host, emptied.handle)
                driver.copy_to_host(self._slot(slot), part.address, part.nbytes, queues.to_host)
                self._put_on_host(operation, number, begin(slot, part.nbytes))
                batch.append((number, slot, part))
            for number, slot, part in batch:
                driver.wait_for_value(queues.to_device, self._flags.device_address(number), number % 2**32)
                driver.copy_to_device(part.address, self._slot(slot), part.nbytes, queues.to_device)
                self._emptied[slot] = queues.record(queues.to_device)
        return []

    def _put_step(
        self,
        operation: DeviceOperation,
        reads: Sequence[DeviceMemory],
        writes: Sequence[DeviceMemory],
        places: Mapping[DeviceMemory, np.ndarray],
        begin: Begin,
    ) -> None:
        queues, driver = operation.queues, self._driver
        number = self._take_number()
        for memory in reads:
            if memory.nbytes:
                driver.copy_to_host(address_of(places[memory]), memory.address, memory.nbytes, queues.to_host)
        sources, targets = ([places[memory] for memory in some] for some in (reads, writes))
        self._put_on_host(operation, number, lambda: begin(sources, targets))
        driver.wait_for_value(queues.to_device, self._flags.device_address(number), number % 2**32)
        for memory in writes:
            if memory.nbytes:
                driver.copy_to_device(memory.address, address_of(places[memory]), memory.nbytes, queues.to_device)

    def _take_number(self) -> int:
        """The number of the next step, once it may be added."""
        self.take_room()
        self._steps += 1
        return self._steps

    def _slot(self, slot: int) -> int:
        return self._tiles.address + slot * self._tile_bytes

    def _check(self, stream: int | None) -> None:
        self.check()
        if stream is not None and self._driver.is_capturing(stream):
            raise UnsupportedError(
                "the current stream is being captured into a CUDA graph: weft's operations need the host in each "
                "run and cannot be part of one; capture the computation alone, and communicate between two replays"
            )

    def _put_on_host(self, operation: DeviceOperation, number: int, begin: Callable[[], Waitable]) -> None:
        """Adds the host's part of an operation, and the release of the device after it."""

        def end(error: BaseException | None) -> None:
            # Before the device is released: when the result is complete, the handle must know.
            operation.end_step(error)
            self._flags.raise_(number)

        self.put_step(Step(self._queues.arrival(operation.queues), begin, end))

    # Allocation and release.

    def _register(self, device: int, shared: np.ndarray) -> str:
        """Registers all memory, tries operations that may be refused, and returns the refusal."""
        self._registered: list[Registered | Flags | Blocks] = []
        try:
            self._tiles = Registered(self._driver, device, shared)
            self._registered.append(self._tiles)
            self._flags = Flags(self._driver, device)
            self._registered.append(self._flags)
            self._blocks = Blocks(self._driver, device)
            self._registered.append(self._blocks)
            copies = LateCopies(self._driver, self._late_queues, self._blocks)
            self._messages = Messages(self.messages_in_order, self._driver, self._late_queues, copies)
            queues = self.queues_of(device)
            with self._driver.on(device):
                number = self._take_number()
                self._driver.wait_for_value(queues.to_host, self._flags.device_address(number), number)
                queues.report_arrival()
                self._flags.raise_(number)
                self._driver.synchronize_stream(queues.to_host)
            self.give_room()
        except DeviceError as error:
            return str(error)
        return ""

    def _agree(self, group: RankGroup, own: str) -> None:
        """Raises on all ranks if one of them cannot take part."""
        refused = group.all_gather(np.array([bool(own)]))[:, 0].nonzero()[0].tolist()
        if not refused:
            return
        self._release()
        self.group.close()
        if own:
            raise UnsupportedError(f"the driver refuses an operation that communication on device memory needs: {own}")
        raise UnsupportedError(f"ranks {refused} cannot take part in operations on device memory: see their errors")

    def _release(self) -> None:
        for one in (*self._registered, self._queues, self._late_queues):
            with contextlib.suppress(DeviceError):
                one.close()
