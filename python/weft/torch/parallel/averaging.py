"""Averaging of buckets: the interface for the reducer, and the exact average."""

from __future__ import annotations

from typing import Protocol

from weft.datatypes.ops import Op
from weft.torch.parallel.buckets import Bucket, Handle
from weft.torch.parallel.communication import Communication

__all__ = ["Averaging", "BothHandles", "ExactAveraging", "ReadyHandle"]


class Averaging(Protocol):
    """A method of averaging buckets."""

    def __call__(self, bucket: Bucket) -> Handle:
        """Starts the average of a bucket's memory.

        Called once for every bucket of a step, in the order of the plan, on the thread of backward.
        `Bucket.sent_bytes` is in the end the number of bytes that this rank has sent.
        """

    def operation(self, bucket: Bucket) -> tuple[Op, int]:
        """The operation and elements by which the flight record's entries of an average are found.

        For averages that are not timed by the observer.
        """

    def finish(self) -> None:
        """Waits for the operations that are still under way after all handles were waited for."""


class ExactAveraging:
    """All-reduces of gradients and flags, by the algorithms of the plan."""

    def __init__(self, communication: Communication) -> None:
        self._communication = communication

    def __call__(self, bucket: Bucket) -> Handle:
        """See `Averaging`."""
        if self._communication.size == 1:
            return ReadyHandle()
        bucket.sent_bytes = bucket.memory.nbytes
        planned = bucket.planned
        if bucket.division is not None:
            bucket.division.is_partial = True
            how = planned.priority
            scattered = self._communication.issue(bucket.division.scatter("avg"), priority=how)
            return BothHandles(scattered, self._communication.issue(bucket.prepared_flags, priority=how))
        if not bucket.memory.is_cpu:
            return self._communication.all_reduce(bucket.memory, algorithm=planned.algorithm)
        return self._communication.issue(bucket.prepared, priority=planned.priority, algorithm=planned.algorithm)

    def operation(self, bucket: Bucket) -> tuple[Op, int]:
        """See `Averaging`."""
        averaged = bucket.memory if bucket.division is None else bucket.buffer
        return "avg", averaged.numel()

    def finish(self) -> None:
        """See `Averaging`."""


class BothHandles:
    """The reduce-scatter of a divided bucket's gradients, and the all-reduce of its flags."""

    def __init__(self, gradients: Handle, flags: Handle) -> None:
        self._gradients, self._flags = gradients, flags

    def wait(self) -> None:
        """Waits for both."""
        self._gradients.wait()
        self._flags.wait()


class ReadyHandle:
    """An average that is complete already."""

    def wait(self) -> None:
        """Returns immediately."""
