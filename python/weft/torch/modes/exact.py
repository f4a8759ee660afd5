"""The exact average, as DDP computes it."""

from __future__ import annotations

from weft.torch.modes.bucket import Bucket
from weft.torch.modes.mode import Communication, Mode, Stages

__all__ = ["Exact"]


class Exact(Mode):
    """The average of all ranks' gradients: `sum(g / P)`, as torch's `allreduce_hook`.

    Every rank sends all n elements.
    """

    one_stage = True

    def average(self, bucket: Bucket, communication: Communication) -> Stages:
        """See `Mode.average`."""
        self._begin(bucket)
        yield communication.all_reduce(bucket.buffer.div_(communication.size))
