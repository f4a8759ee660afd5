"""Communication of modes over a process group of torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup, distributed_c10d

from weft.torch.modes.mode import Work

__all__ = ["GroupCommunication"]


class GroupCommunication:
    """Operations of a process group for modes: see `weft.torch.modes.Communication`."""

    def __init__(self, group: ProcessGroup | None = None) -> None:
        """`group` is the default group by default."""
        self._group = distributed_c10d._get_default_group() if group is None else group

    @property
    def rank(self) -> int:
        """This rank's number."""
        return self._group.rank()

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._group.size()

    def all_reduce(self, tensor: Tensor) -> Work:
        """Starts the sum over all ranks, in place."""
        return _started(dist.all_reduce(tensor, group=self._group, async_op=True))

    def all_gather(self, outputs: Sequence[Tensor], tensor: Tensor) -> Work:
        """Starts an exchange: `outputs[i]` becomes rank i's tensor."""
        return _started(dist.all_gather(list(outputs), tensor, group=self._group, async_op=True))

    def all_to_all(
        self, output: Tensor, source: Tensor, *, received: list[int] | None = None, sent: list[int] | None = None
    ) -> Work:
        """Starts an exchange: block i of `output` becomes rank i's block for this rank."""
        return _started(dist.all_to_all_single(output, source, received, sent, group=self._group, async_op=True))


def _started(work: dist.Work | None) -> Work:
    assert work is not None, "an asynchronous operation has a handle on every member of the group"
    return work
