"""Buffers of modules, such as the statistics of BatchNorm, on all ranks."""

from __future__ import annotations

from typing import Literal, get_args

import torch
import torch.distributed as dist
from torch import Tensor, nn

from weft.errors import ArgumentError
from weft.torch.parallel.communication import Communication
from weft.torch.parallel.urgency import LEVELS
from weft.torch.priorities import priority

__all__ = ["BufferPolicy", "ModuleBuffers", "flat", "unflat"]

BufferPolicy = Literal["broadcast", "average", "leave"]

_URGENT = LEVELS - 1
"""Like gradients that forward needs first: no higher level is left."""


class ModuleBuffers:
    """The policy for a model's buffers before a forward that trains."""

    def __init__(self, module: nn.Module, communication: Communication, policy: BufferPolicy) -> None:
        """Keeps the policy.

        `broadcast` uses those of rank 0, `average` the average of floating-point buffers and rank
        0's others, `leave` leaves each rank its own.
        """
        if policy not in get_args(BufferPolicy):
            raise ArgumentError(f"buffers={policy!r}: expected one of {', '.join(get_args(BufferPolicy))}")
        self._module = module
        self._communication = communication
        self._policy = policy

    def synchronize(self, root: int = 0) -> None:
        """Makes them equal on all ranks according to the policy. Every rank calls it."""
        if self._policy == "leave" or self._communication.size == 1:
            return
        buffers = list(filter(Tensor.numel, self._module.buffers()))
        if not buffers:
            return
        averaged = [b for b in buffers if self._policy == "average" and b.is_floating_point()]
        self._average(averaged)
        self.broadcast([b for b in buffers if not any(b is other for other in averaged)], root)

    def broadcast(self, buffers: list[Tensor], root: int) -> None:
        """Sends the buffers of `root` to every rank, one message for each element type."""
        source = dist.get_global_rank(self._communication.process_group, root)
        for same in _by_dtype(buffers):
            vector = flat(same)
            with priority(_URGENT):  # not behind gradients that are under way
                dist.broadcast(vector, source, group=self._communication.process_group)
            unflat(vector, same)

    def _average(self, buffers: list[Tensor]) -> None:
        for same in _by_dtype(buffers):
            vector = flat(same)
            self._communication.all_reduce(vector, "avg", priority=_URGENT).wait()
            unflat(vector, same)


def _by_dtype(tensors: list[Tensor]) -> list[list[Tensor]]:
    groups: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.dtype, []).append(tensor.detach())
    return list(groups.values())


def flat(tensors: list[Tensor]) -> Tensor:
    """All elements, tensor by tensor."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def unflat(vector: Tensor, tensors: list[Tensor]) -> None:
    """Copies elements back, as `flat` has ordered them."""
    start = 0
    for tensor in tensors:
        tensor.copy_(vector[start : start + tensor.numel()].view(tensor.shape))
        start += tensor.numel()
