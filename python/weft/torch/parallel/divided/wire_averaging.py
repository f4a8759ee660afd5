"""Averages of divided buckets in a wire format of 16 bits."""

from __future__ import annotations

import torch
from torch import Tensor

from weft.datatypes.ops import Op
from weft.torch.modes.wire import Wire
from weft.torch.parallel.averaging import Averaging
from weft.torch.parallel.buckets import Bucket, Handle
from weft.torch.parallel.communication import Communication

__all__ = ["DIVISIBLE_FORMATS", "WireAveraging"]

_ROUNDED = {"fp16": torch.float16, "bf16": torch.bfloat16}
DIVISIBLE_FORMATS = ("full", *_ROUNDED)
"""The formats whose elements are rounded one by one, so that the owner of a share can."""


class WireAveraging:
    """Averages in the mode `Wire`, of divided buckets each rank's share.

    Rounding differs from the mode's all-reduce in one respect: which rank's own contribution is not
    rounded, as it does not travel.
    """

    def __init__(self, others: Averaging, mode: Wire, communication: Communication) -> None:
        """`others` averages the buckets that are not divided, in the mode."""
        self._others = others
        self._format = mode.format
        self._communication = communication
        self._rounded = _ROUNDED.get(mode.format) if communication.hosts > 1 else None

    def __call__(self, bucket: Bucket) -> Handle:
        """See `Averaging`."""
        division = bucket.division
        if division is None:
            return self._others(bucket)
        is_rounded = bucket.buffer.dtype == torch.float32
        bucket.buffer.div_(self._communication.size)
        bucket.sent_bytes = bucket.memory.nbytes
        division.is_partial = True
        how = bucket.planned.priority
        gradients = self._communication.issue(
            division.scatter("sum"), priority=how, wire=self._format if is_rounded else None
        )
        flags = self._communication.issue(bucket.prepared_flags, priority=how)
        return _Rounded(gradients, flags, division.averages, self._rounded if is_rounded else None)

    def operation(self, bucket: Bucket) -> tuple[Op, int]:
        """See `Averaging`."""
        return "sum", bucket.buffer.numel()

    def finish(self) -> None:
        """See `Averaging`."""
        self._others.finish()


class _Rounded:
    """A reduce-scatter whose results are rounded, as an all-reduce rounds what it sends on."""

    def __init__(self, gradients: Handle, flags: Handle, averages: Tensor, to: torch.dtype | None) -> None:
        self._gradients, self._flags = gradients, flags
        self._averages, self._to = averages, to

    def wait(self) -> None:
        """Waits for both, and rounds."""
        self._gradients.wait()
        self._flags.wait()
        if self._to is not None:
            self._averages.copy_(self._averages.to(self._to))
            self._to = None
