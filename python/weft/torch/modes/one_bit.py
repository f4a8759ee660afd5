"""1-bit compression with error feedback: signs and one scale."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from weft.torch.modes.bucket import Bucket
from weft.torch.modes.mode import Communication, Mode, Stages
from weft.torch.modes.state import PerParameter, drop_not_finite

__all__ = ["OneBit"]

_SCALE_BYTES = 4
_BITS = 8


class OneBit(Mode):
    """Sends the sign of every element, twice (1-bit Adam, arXiv 2102.02888; 1-bit SGD).

    `x = g + e; s = |x|_2 / sqrt(n); send s sign(x); e = x - s sign(x)`. A P-th of the bucket
    belongs to each rank, which averages the parts that it receives, adds its own error of the last
    step, compresses in the same way and sends the result to all.

    Each rank sends a block of n / P bits and a scale of 4 bytes to every other rank, twice.
    """

    def __init__(self, *, warmup_steps: int = 0) -> None:
        """`warmup_steps` are exact."""
        self._residual, self._own_residual = PerParameter(), PerParameter()
        super().__init__(residual=self._residual, own_residual=self._own_residual)
        self._warmup_steps = warmup_steps

    def average(self, bucket: Bucket, communication: Communication) -> Stages:
        """See `Mode.average`."""
        size, rank = communication.size, communication.rank
        if self._begin(bucket) < self._warmup_steps:
            yield communication.all_reduce(bucket.buffer.div_(size))
            return
        residual, own_residual = self._residual.of(bucket), self._own_residual.of(bucket)
        block = -(-residual.numel() // (size * _BITS)) * _BITS  # elements; the last ones may be shorter
        own = slice(min(rank * block, residual.numel()), min((rank + 1) * block, residual.numel()))
        residual.add_(bucket.buffer)
        _take_over(residual, own_residual, own, size)
        messages = _messages(residual, size, block)
        received = torch.empty_like(messages)
        yield communication.all_to_all(received.view(-1), messages.view(-1))
        residual.sub_(_decoded(messages, residual))
        part = own_residual[own]
        for message in received:
            part.add_(_decoded(message.unsqueeze(0), part) / size)
        result = _messages(part, 1, block)
        part.sub_(_decoded(result, part))
        results = torch.empty_like(messages)
        yield communication.all_gather(results.unbind(), result.view(-1))
        bucket.buffer.copy_(_decoded(results, bucket.buffer))
        if not bucket.buffer.isfinite().all():
            drop_not_finite(residual)
            drop_not_finite(own_residual)


def _take_over(residual: Tensor, own_residual: Tensor, own: slice, size: int) -> None:
    """Moves errors of blocks that no longer belong to this rank to its own contribution.

    That is needed after a new layout of buckets. The average divides contributions by `size`.
    """
    kept = own_residual[own].clone()
    own_residual[own] = 0
    if own_residual.count_nonzero():
        residual.add_(own_residual, alpha=size)
        own_residual.zero_()
    own_residual[own] = kept


def _messages(vector: Tensor, blocks: int, block: int) -> Tensor:
    """A message for each block of `block` elements: the scale, then bits, set where not negative.

    Returns:
        `blocks` rows of bytes.
    """
    scale = torch.linalg.vector_norm(vector) / max(1, vector.numel()) ** 0.5
    signs = np.packbits((vector >= 0).numpy(), bitorder="little")
    rows = np.zeros((blocks, block // _BITS), np.uint8)
    rows.reshape(-1)[: signs.size] = signs
    scales = scale.to(torch.float32).view(1).view(torch.uint8).expand(blocks, _SCALE_BYTES)
    return torch.cat([scales, torch.from_numpy(rows)], 1)


def _decoded(messages: Tensor, like: Tensor) -> Tensor:
    """The elements of messages one after the other, as many as `like` has."""
    bits = np.unpackbits(messages[:, _SCALE_BYTES:].numpy(), axis=1, bitorder="little")
    scales = messages[:, :_SCALE_BYTES].reshape(-1).clone().view(torch.float32).to(like.dtype).unsqueeze(1)
    signs = torch.from_numpy(bits).to(like.dtype).mul_(2).sub_(1)
    return signs.mul_(scales).view(-1)[: like.numel()]
