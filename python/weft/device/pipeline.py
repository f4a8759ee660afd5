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
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from weft import _weft
from weft.datatypes.dtypes import DType
from weft.datatypes.operations import native_operation
from weft.datatypes.ops import Op, PremulSum
from weft.device.capture import refuse_capture
from weft.device.driver import Driver
from weft.device.host_steps import HostSteps
from weft.device.late import LateCopies
from weft.device.memory import Block, Blocks, DeviceMemory, Words, address_of
from weft.device.messages import Begin, Messages
from weft.device.operation import DeviceOperation
from weft.device.queues import CopyQueues, QueuesOfDevices
from weft.device.step import Step, Waitable
from weft.device.streams import OwnStreams, Streams
from weft.device.tiles import SLOTS, RankGroup, Tiles
from weft.device.uses import Uses
from weft.errors import DeviceError

__all__ = ["Pipeline"]

_ELEMENTS = 128
"""Tiles are multiples of this many elements: blocks of the wire formats have this many."""


class Pipeline(HostSteps):
    """All operations of one group on device memory, of any device of this process."""

    def __init__(
        self,
        group: RankGroup,
        driver: Driver,
        device: int,
        tile_bytes: int,
        streams: Streams | None = None,
        timeout: float | None = None,
    ) -> None:
        """Makes the memory that ranks share, of `SLOTS` tiles. Every rank of the group calls it.

        Args:
            group: A group that is used for nothing else. It is closed with the pipeline.
            driver: The driver.
            device: This rank's first device.
            tile_bytes: The size of a tile, of at least a page, the same on all ranks.
            streams: Makes streams for copies; by default they end with the pipeline.
            timeout: Seconds that each collective may take; the group's by default.
        """
        super().__init__(group.native)
        self._driver = driver
        self._timeout = timeout
        self._uses = Uses()
        makers = streams or OwnStreams()
        self._words = Words(driver, device)
        self._queues, self._late_queues, self._message_queues = self._all_queues = [
            QueuesOfDevices(driver, makers, self._words, self, self._uses) for _ in range(3)
        ]
        self._number = 1  # of the last step, which was a trial of the words: see `Tiles`
        self._held: collections.deque[tuple[DeviceOperation, object]] = collections.deque()
        self._blocks = Blocks(driver, device)
        self._late = LateCopies(self, driver, self._late_queues, self._blocks)
        copies = LateCopies(self, driver, self._message_queues, self._blocks)
        self._messages = Messages(self.messages_in_order, driver, self._message_queues, copies)
        self._tiles = Tiles(group, driver, self._queues, device, tile_bytes)
        self._reports = threading.Thread(target=self._heed_reports, name="weft-device-reports", daemon=True)
        self._reports.start()
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
        self._check(device, stream, "all_reduce")
        # Checks type and operation before anything is under way.
        kind = native_operation("all-reduce", dtype.name, dtype.itemsize, op)
        keywords = dict(how or {})
        limit = self._timeout if timeout is None else timeout

        def add(operation: DeviceOperation, number: int, slot: int, nbytes: int) -> None:
            request = _weft.Request(kind, nbytes // dtype.itemsize, None, self._tiles.address(slot))
            words = operation.queues.arrival_word(), self._tiles.release_word(number)
            part = operation.collectives
            assert part is not None, "it has tiles"
            self.steps.put_collective(self.group, request, operation.device, *words, part, limit, **keywords)

        def begin_whole(_: list[np.ndarray], targets: list[np.ndarray]) -> _weft.Work:
            count, (target,) = memory.nbytes // dtype.itemsize, targets
            return self.group.issue_in_place(kind, count, address_of(target), target, limit, **keywords)

        if self._tiles.nbytes:
            parts = self._parts(memory, dtype.itemsize)
            tiles = _weft.HostPart(len(parts))
            operation = self._put(device, stream, tiles, lambda one: self._put_tiles(one, parts, add))
        else:
            operation = self._put_late([memory], [memory], begin_whole, device, stream)
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
            copy = self._read(memory, device)  # its registration has ended since
            return self.group.send(to, tag, address_of(copy), memory.nbytes, self._timeout, copy)

        operation = self._message(device, stream, "send", late=True)
        self._messages.send_in_place(begin, operation, stream)
        return operation

    def message(
        self,
        reads: Sequence[DeviceMemory],
        writes: Sequence[DeviceMemory],
        begin: Begin,
        *,
        name: str = "this operation",
        device: int,
        stream: int | None,
    ) -> DeviceOperation:
        """Sends `reads`, or receives into `writes`, as `begin` does on bytes of the host.

        The arguments are as in `on_host`. See [Note: Messages have an order of their own].
        """
        operation = self._message(device, stream, name, late=bool(writes))
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
        name: str = "this operation",
        device: int,
        stream: int | None,
    ) -> DeviceOperation:
        """Copies memory to the host, runs an operation there, and copies memory back.

        Args:
            reads: Memory that is copied to the host.
            writes: Memory that is copied back; memory that is also in `reads` is one piece there.
            begin: Starts the operation, on bytes of the host for each of `reads` and `writes`.
            name: Its name in errors.
            device: The device of the memory.
            stream: The operation begins after the work in this stream; None: immediately.
        """
        self._check(device, stream, name)
        if not self._tiles.nbytes:
            return self._put_late(reads, writes, begin, device, stream)
        with self._driver.on(device):
            block, places = self._blocks.take_for([*reads, *writes])
        if block.registered is None:
            return self._put_late(reads, writes, begin, device, stream)

        def put(operation: DeviceOperation) -> list[Block]:
            self._put_step(operation, reads, writes, places, begin)
            return [block]

        return self._put(device, stream, None, put)

    def queues_of(self, device: int) -> CopyQueues:
        """The copy queues of a device."""
        return (self._queues if self._tiles.nbytes else self._late_queues).of(device)

    # The interface for handles.

    def check_wait(self, stream: int, operation: DeviceOperation) -> None:
        """Raises if a stream cannot wait for operations."""
        refuse_capture(self._driver, operation.device, stream, "wait")

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

    def _heed_reports(self) -> None:
        """Looks at devices that make the host wait, and reports the first failure of a tile."""
        while (report := self.steps.report()) is not None:
            if isinstance(report, int):
                self._queues.look(self._queues.of(report))
            else:
                self.announce(report)

    def _end_copies(self) -> None:
        self.steps.close_reports()
        self._reports.join()
        for queues in self._all_queues:
            queues.synchronize()
        self._uses.end()
        self._tiles.close()
        self._blocks.close()
        for queues in self._all_queues:
            queues.close()
        with contextlib.suppress(DeviceError):
            self._words.close()

    def _keep(self, operation: DeviceOperation, hold: object) -> None:
        while self._held and self._held[0][0].is_done():
            self._held.popleft()
        if hold is not None:
            self._held.append((operation, hold))

    # Submission to the streams.

    def _message(self, device: int, stream: int | None, name: str, *, late: bool) -> DeviceOperation:
        self._check(device, stream, name)
        self._blocks.begin_operation()
        return DeviceOperation(self, self._message_queues.of(device), late=late)

    def _put(
        self,
        device: int,
        stream: int | None,
        collectives: _weft.HostPart | None,
        put: Callable[[DeviceOperation], list[Block]],
    ) -> DeviceOperation:
        with self._lock, self._driver.on(device):
            self.check()
            self._blocks.begin_operation()
            queues = self._queues.of(device)
            operation = DeviceOperation(self, queues, collectives)
            try:
                if stream is not None:
                    queues.begin_after(stream)
                blocks = put(operation)
                operation.done, operation.number = queues.record(queues.to_device), self._number
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
        add: Callable[[DeviceOperation, int, int, int], None],
    ) -> list[Block]:
        """See [Note: Everything is put into streams at the call]."""
        queues, driver, tiles = operation.queues, self._driver, self._tiles
        for first in range(0, len(parts), SLOTS):
            batch = []
            for part in parts[first : first + SLOTS]:
                with self._next_step() as number:
                    slot = tiles.next_slot()
                    tiles.wait_until_empty(slot, queues)
                    driver.copy_to_host(tiles.address(slot), part.address, part.nbytes, queues.to_host)
                    add(operation, number, slot, part.nbytes)
                batch.append((number, slot, part))
            for number, slot, part in batch:
                tiles.wait_for_release(number, queues)
                driver.copy_to_device(part.address, tiles.address(slot), part.nbytes, queues.to_device)
                tiles.empty(slot, queues)
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
        with self._next_step() as number:
            for memory in reads:
                if memory.nbytes:
                    driver.copy_to_host(address_of(places[memory]), memory.address, memory.nbytes, queues.to_host)
            sources, targets = ([places[memory] for memory in some] for some in (reads, writes))
            self._put_on_host(operation, number, lambda: begin(sources, targets))
        self._tiles.wait_for_release(number, queues)
        for memory in writes:
            if memory.nbytes:
                driver.copy_to_device(memory.address, address_of(places[memory]), memory.nbytes, queues.to_device)

    def _read(self, memory: DeviceMemory, device: int) -> np.ndarray:
        """A copy of memory that is complete, by a stream that waits for nothing else."""
        streams = OwnStreams()
        with self._driver.on(device):
            block, places = self._blocks.take_for([memory])
            stream = streams.take(self._driver, device)
            self._driver.copy_to_host(address_of(places[memory]), *memory, stream)
            copied = self._message_queues.of(device).record(stream)
            self._driver.synchronize_stream(stream)
            streams.give_back(self._driver, device, stream)
            copy = places[memory].copy()
            block.free_after = copied
        return copy

    @contextlib.contextmanager
    def _next_step(self) -> Iterator[int]:
        """Yields the number of the next step, once it may be added, which the block does."""
        with self.room():
            self._number += 1
            yield self._number

    def _parts(self, memory: DeviceMemory, itemsize: int) -> list[DeviceMemory]:
        tile = max(self._tiles.nbytes // itemsize // _ELEMENTS, 1) * _ELEMENTS * itemsize
        return [
            DeviceMemory(memory.address + start, min(tile, memory.nbytes - start))
            for start in range(0, memory.nbytes, tile)
        ]

    def _check(self, device: int, stream: int | None, name: str) -> None:
        self.check()
        if stream is not None:
            refuse_capture(self._driver, device, stream, name)

    def _put_on_host(self, operation: DeviceOperation, number: int, begin: Callable[[], Waitable]) -> None:
        """Adds the host's part of an operation, and the release of the device after it."""

        def end(error: BaseException | None) -> None:
            # Before the device is released: when the result is complete, the handle must know.
            operation.end(error)
            self._tiles.release(number)

        self.steps.put(Step(self._queues.arrival(operation.queues), begin, end))

    def _put_late(
        self,
        reads: Sequence[DeviceMemory],
        writes: Sequence[DeviceMemory],
        begin: Begin,
        device: int,
        stream: int | None,
    ) -> DeviceOperation:
        """See [Note: Late copies]."""
        with self._lock, self._driver.on(device):
            self.check()
            self._blocks.begin_operation()
            operation = DeviceOperation(self, self._late_queues.of(device), late=True)
            try:
                with self.room():
                    copied = self._late.to_host(operation, reads, writes, stream)
            except BaseException as error:
                self.fail_in_order(error)
                raise

            def end(error: BaseException | None) -> None:
                operation.end(error or self._late.back(operation, copied, writes))

            sources, targets = ([copied.places[memory] for memory in some] for some in (reads, writes))
            self.steps.put(Step(copied.arrive, lambda: begin(sources, targets), end, calls_driver=True))
        return operation
