"""Operations on memory of any accelerator, by torch's generic streams and events.

[Note: The host puts copies back] torch's generic API has no way to make a stream wait for the host.
So a thread that sleeps until the host has completed its part then puts the copy back into a stream
of weft's. Before, there is nothing that the caller's stream could wait for: `wait` blocks its
caller until the host is done, and then makes the caller's stream wait.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft import _weft
from weft.datatypes.dtypes import DType
from weft.datatypes.operations import native_operation
from weft.datatypes.ops import Op, PremulSum
from weft.device.host_steps import HostSteps
from weft.device.memory import address_of
from weft.device.messages import Begin
from weft.device.step import Step

__all__ = ["CopyStreams", "HostQueue", "QueuedOperation"]


class CopyStreams:
    """A device's stream for each direction."""

    def __init__(self, device: torch.device) -> None:
        self.to_host, self.to_device = torch.Stream(device), torch.Stream(device)
        self._device = device

    def begin_after(self, stream: torch.Stream) -> None:
        """Makes later work in both begin after the work in `stream`."""
        self.to_host.wait_stream(stream)
        self.to_device.wait_stream(stream)

    def record(self, stream: torch.Stream) -> torch.Event:
        """An event that happens when all work in `stream` is complete.

        A thread that waits for it sleeps.
        """
        event = torch.Event(self._device, blocking=True)
        event.record(stream)
        return event


class QueuedOperation:
    """The handle of an operation: see [Note: The host puts copies back]."""

    def __init__(self, device: int, streams: CopyStreams) -> None:
        self.device = device
        self.streams = streams
        self.error: BaseException | None = None
        self.kept: list[Tensor] = []
        """Tensors whose memory must stay until the copies are complete."""
        self._done: torch.Event | None = None
        self._host_part = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []

    def end(self, done: torch.Event | None, error: BaseException | None) -> None:
        """Notes that the host has completed its part or failed; called by one thread."""
        with self._lock:
            self._done, self.error = done, error
            self._host_part.set()
        for callback in self._callbacks:
            callback()

    def when_ended(self, callback: Callable[[], object]) -> None:
        """Calls a function when the host has completed its part, or immediately if it has."""
        with self._lock:
            if not self._host_part.is_set():
                self._callbacks.append(callback)
                return
        callback()

    def wait_on(self, stream: torch.Stream) -> None:
        """Waits for the host's part, and makes a stream of this device wait for the result.

        Raises:
            weft.Error: The operation has failed.
        """
        self._host_part.wait()
        stream.wait_event(self._copied())

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the result is in the device's memory.

        Returns False if the host has not completed its part after `timeout` seconds. Raises its
        error.
        """
        if not self._host_part.wait(timeout):
            return False
        self._copied().synchronize()
        return True

    def is_done(self) -> bool:
        """Whether it has ended or failed: `wait` will not block."""
        return self._host_part.is_set() and (self._done is None or self._done.query())

    def _copied(self) -> torch.Event:
        """The event of the copies back, if the host's part has succeeded."""
        if self._done is None:
            assert self.error is not None, "an operation that has ended has an event or an error"
            raise self.error
        return self._done


class HostQueue(HostSteps):
    """All operations of one group on memory of devices of one kind, in the order of their calls."""

    def __init__(self, group: _weft.Group, kind: str, timeout: float | None = None) -> None:
        """`group` is closed with the queue; `kind` is torch's name for the devices."""
        super().__init__(group)
        self._kind = kind
        self._timeout = timeout
        self._message_lock = threading.Lock()
        self._remembering = threading.Lock()
        self._streams: dict[tuple[int, bool], CopyStreams] = {}
        self._under_way: list[QueuedOperation] = []
        self.start()

    def all_reduce(
        self,
        memory: Tensor,
        dtype: DType,
        op: Op | PremulSum,
        *,
        device: int,
        stream: torch.Stream,
        timeout: float | None = None,
        how: Mapping[str, Any] | None = None,
    ) -> QueuedOperation:
        """Replaces every rank's memory by the reduction of all. See `weft.device.Pipeline`."""
        limit = self._timeout if timeout is None else timeout
        # Checks type and operation before anything is under way.
        kind = native_operation("all-reduce", dtype.name, dtype.itemsize, op)

        def begin(_: list[np.ndarray], targets: list[np.ndarray]) -> _weft.Work:
            (target,) = targets
            return self.group.issue_in_place(kind, memory.numel(), address_of(target), target, limit, **(how or {}))

        return self.on_host([memory], [memory], begin, device=device, stream=stream)

    def send(self, memory: Tensor, to: int, tag: int, *, device: int, stream: torch.Stream) -> None:
        """Returns None: no adapter reads memory of such devices. See `weft.device.Pipeline`."""

    def on_host(
        self,
        reads: Sequence[Tensor],
        writes: Sequence[Tensor],
        begin: Begin,
        *,
        name: str = "",  # noqa: ARG002  # the caller has checked the stream
        device: int,
        stream: torch.Stream,
    ) -> QueuedOperation:
        """Copies memory to the host, runs an operation there, and copies memory back.

        Args:
            reads: Memory that is copied to the host, contiguous.
            writes: Memory that is copied back; a tensor that is also in `reads` is one piece there.
            begin: Starts the operation, on bytes of the host for each of `reads` and `writes`.
            name: Its name in errors.
            device: The device of the memory.
            stream: The operation begins after the work in this stream.
        """
        with self._lock:
            self.check()
            try:
                with self.room():
                    operation, step = self._copied(reads, writes, begin, device, stream)
            except BaseException as error:  # also an interrupt: the other ranks continue without this one
                self.fail_in_order(error)
                raise
            self.steps.put(step)
        return operation

    def message(
        self,
        reads: Sequence[Tensor],
        writes: Sequence[Tensor],
        begin: Begin,
        *,
        name: str = "",  # noqa: ARG002
        device: int,
        stream: torch.Stream,
    ) -> QueuedOperation:
        """Sends `reads`, or receives into `writes`. See `weft.device.Pipeline`."""
        with self._message_lock:
            self.check()
            operation, step = self._copied(reads, writes, begin, device, stream, message=True)
            if writes:
                step.arrive = lambda: None
                self.messages_in_order.receive(step)
            else:
                self.messages_in_order.send(step)
        return operation

    def _copied(
        self,
        reads: Sequence[Tensor],
        writes: Sequence[Tensor],
        begin: Begin,
        device: int,
        stream: torch.Stream,
        *,
        message: bool = False,
    ) -> tuple[QueuedOperation, Step]:
        """Starts the copies to the host; returns the operation, and the host's step of it."""
        streams = self._streams_of(device, message)
        streams.begin_after(stream)
        places = {id(tensor): _host_memory(tensor) for tensor in (*reads, *writes)}
        with streams.to_host:
            for tensor in reads:
                _as(places[id(tensor)], tensor).copy_(tensor, non_blocking=True)
        arrived = streams.record(streams.to_host)
        sources, targets = ([places[id(tensor)].numpy() for tensor in some] for some in (reads, writes))
        copies_back = [(tensor, _as(places[id(tensor)], tensor)) for tensor in writes]
        operation = self._new_operation(device, streams)
        end = functools.partial(self._end, operation, copies_back)
        return operation, Step(arrived.synchronize, lambda: begin(sources, targets), end)

    def _new_operation(self, device: int, streams: CopyStreams) -> QueuedOperation:
        """An operation that lives, with its references, until its copies are complete."""
        operation = QueuedOperation(device, streams)
        with self._remembering:
            self._under_way = [operation, *(one for one in self._under_way if not one.is_done())]
        return operation

    def _end_copies(self) -> None:
        for streams in self._streams.values():
            streams.to_device.synchronize()
        self._under_way.clear()

    def _streams_of(self, device: int, message: bool) -> CopyStreams:
        if (device, message) not in self._streams:
            self._streams[device, message] = CopyStreams(torch.device(self._kind, device))
        return self._streams[device, message]

    def _end(
        self, operation: QueuedOperation, copies_back: list[tuple[Tensor, Tensor]], error: BaseException | None
    ) -> None:
        """Puts the copies back into their stream, unless the operation has failed."""
        streams, done = operation.streams, None
        if error is None:
            try:
                with streams.to_device:
                    for tensor, copy in copies_back:
                        tensor.copy_(copy, non_blocking=True)
                done = streams.record(streams.to_device)
            except BaseException as failure:
                self.fail(failure)
                error = failure
        operation.end(done, error)


def _host_memory(tensor: Tensor) -> Tensor:
    """As many bytes of the host, pinned if torch has such memory."""
    try:
        return torch.empty(tensor.nbytes, dtype=torch.uint8, pin_memory=True, device="cpu")
    except RuntimeError:
        return torch.empty(tensor.nbytes, dtype=torch.uint8, device="cpu")


def _as(memory: Tensor, tensor: Tensor) -> Tensor:
    """Bytes as a tensor of the type and shape of another."""
    return memory.view(tensor.dtype).view(tensor.shape)
