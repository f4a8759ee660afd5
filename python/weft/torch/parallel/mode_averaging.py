"""Averaging of buckets in a communication mode.

[Note: Where stages run] A mode's first stage runs on the thread of backward, bucket by bucket in
the order of the plan, and starts its operations in the model's group, with the bucket's priority.
If a mode starts no operation later, the waiter for the bucket runs the other stages. The other
stages of other modes run on the group's communication thread, in the same order, and start their
operations in that thread's child group (see [Note: Callbacks of hooks]). So the order of the
model's group is that of the program, the order of the child group is that of the plan, and both are
the same on all ranks. The thread waits for operations only, never for the program; a backward
begins when the thread has completed the one before.

The flags of unused parameters are averaged exactly, by a separate operation after the first stage.
A mode that has started no operation leaves each rank its own gradients and flags.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from torch import Tensor

from weft.datatypes.ops import Op
from weft.errors import ArgumentError, Error, UnsupportedError
from weft.torch import modes
from weft.torch.call_context import keywords
from weft.torch.communication_thread import communication_thread
from weft.torch.modes.local_sgd import Averager
from weft.torch.parallel.buckets import Bucket, Handle
from weft.torch.parallel.communication import Communication
from weft.torch.parallel.context import outside_of_everything
from weft.torch.parallel.observer import Observer
from weft.torch.parallel.plan import BucketPlan
from weft.torch.priorities import priority

__all__ = ["ModeAveraging", "check_algorithms_of_mode", "check_mode", "for_mode"]


class ModeAveraging:
    """Runs a mode's stages for each bucket: see [Note: Where stages run]."""

    def __init__(self, mode: modes.Mode, communication: Communication, observer: Observer) -> None:
        self._mode = mode
        self._communication = communication
        self._observer = observer

    def __call__(self, bucket: Bucket) -> Handle:
        """See `Averaging`."""
        begun_ns = time.monotonic_ns()
        operations = _BucketOperations(self._communication, bucket)
        with self._in_stage(bucket):
            stages = iter(self._stages(bucket, operations))
            first = next(stages, None)
        flags = operations.average_flags() if operations.started else None

        def rest() -> None:
            with self._in_stage(bucket):
                if first is not None:
                    first.wait()
                    modes.run(stages)
            if flags is not None:
                flags.wait()
            bucket.sent_bytes = operations.sent_bytes

        def timed_rest() -> None:
            rest()
            self._observer.averaged(bucket, type(self._mode).__name__, begun_ns)

        if first is None or self._mode.one_stage:
            return _Rest(rest)
        if self._communication.size == 1:  # there is no other rank
            timed_rest()
            return _Rest(lambda: None)
        return _Rest(self._communication.thread.submit(timed_rest).result)

    def _stages(self, bucket: Bucket, operations: modes.Communication) -> modes.Stages:
        return self._mode.average(for_mode(bucket), operations)

    def operation(self, bucket: Bucket) -> tuple[Op, int]:
        """See `Averaging`. Modes of several stages are timed."""
        return "sum", bucket.buffer.numel()

    def finish(self) -> None:
        """See `Averaging`."""
        self._mode.finish()

    @contextlib.contextmanager
    def _in_stage(self, bucket: Bucket) -> Iterator[None]:
        """Gives operations the bucket's priority, and ends them on all ranks if one rank fails."""
        try:
            with outside_of_everything(), priority(bucket.planned.priority):
                yield
        except Error:  # which all ranks get from the group, or find themselves
            raise
        except Exception as error:
            what = f"{self._mode!r} failed on rank {self._communication.rank} in bucket {bucket.number}: {error!r}"
            self._communication.abort(what)
            raise Error(what) from error


def for_mode(bucket: Bucket) -> modes.Bucket:
    """The bucket's gradients in the form that modes take."""
    parameters: dict[str, Tensor] = {slot.name: slot.parameter for slot in bucket.slots}
    return modes.Bucket(bucket.number, bucket.buffer, parameters, is_last=bucket.is_last)


def check_mode(mode: object, parameters: Iterable[tuple[str, Tensor]]) -> None:
    """Checks that gradients of these parameters can be averaged in a mode, if there is one.

    Raises:
        weft.ArgumentError: It is not a mode of gradients.
        weft.UnsupportedError: A parameter is not floating point.
    """
    if mode is None:
        return
    if not isinstance(mode, modes.Mode):
        kind = type(mode).__name__
        how = (
            f"give mode=weft.torch.modes.LocalGradients() and call the {kind}'s step() after the optimizer's"
            if isinstance(mode, Averager)
            else "expected one of weft.torch.modes, such as PowerSGD(rank=4)"
        )
        raise ArgumentError(f"mode is a {kind}, which does not average gradients: {how}")
    for name, parameter in parameters:
        if not parameter.is_floating_point():
            raise UnsupportedError(
                f"parameter {name} is {parameter.dtype}: modes average floating-point gradients only"
            )


def check_algorithms_of_mode(mode: modes.Mode | None, plan: BucketPlan) -> None:
    """Raises `weft.ArgumentError` if a plan names an algorithm for a mode of several operations."""
    named = {bucket.algorithm for bucket in plan.buckets} - {None}
    if mode is not None and not mode.one_stage and named:
        raise ArgumentError(
            f"the plan averages by {', '.join(sorted(map(str, named)))}: expected algorithm='automatic' with {mode!r}, "
            "which is several operations"
        )


class _Rest:
    """The average of a bucket, which is complete when the other stages have run."""

    def __init__(self, rest: Callable[[], None]) -> None:
        self._rest = rest

    def wait(self) -> None:
        """Runs them, or waits for the thread that runs them."""
        self._rest()


class _BucketOperations(modes.GroupCommunication):
    """A mode's operations for one bucket, counted. Those of the thread are in its child group.

    Sums that are not on the thread bypass torch, as exact averages do.
    """

    def __init__(self, communication: Communication, bucket: Bucket) -> None:
        super().__init__(communication.process_group)
        self._communication = communication
        self._bucket = bucket
        self.started = False
        self.sent_bytes = 0

    def all_reduce(self, tensor: Tensor) -> modes.Work:
        """See `weft.torch.modes.Communication`."""
        self._count(tensor)
        if communication_thread() is not None:
            return super().all_reduce(tensor)
        planned = self._bucket.planned
        how = {**keywords({}), "priority": planned.priority, "algorithm": planned.algorithm}
        return self._communication.all_reduce(tensor, "sum", **how)

    def all_gather(self, outputs: Sequence[Tensor], tensor: Tensor) -> modes.Work:
        """See `weft.torch.modes.Communication`."""
        self._count(tensor)
        return super().all_gather(outputs, tensor)

    def all_to_all(
        self, output: Tensor, source: Tensor, *, received: list[int] | None = None, sent: list[int] | None = None
    ) -> modes.Work:
        """See `weft.torch.modes.Communication`."""
        self._count(source)
        return super().all_to_all(output, source, received=received, sent=sent)

    def average_flags(self) -> modes.Work:
        """Starts the exact average of the bucket's flags."""
        self._count(self._bucket.flags)
        return self._communication.issue(self._bucket.prepared_flags, priority=self._bucket.planned.priority)

    def _count(self, tensor: Tensor) -> None:
        self.started = True
        self.sent_bytes += tensor.nbytes
