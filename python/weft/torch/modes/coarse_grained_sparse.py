"""Coarse-grained sparse communication: the most important chunks, the same on all ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from weft.errors import ArgumentError
from weft.torch.modes.bucket import Bucket
from weft.torch.modes.mode import Communication, Mode, Stages
from weft.torch.modes.momentum import velocity_step
from weft.torch.modes.state import PerParameter, drop_not_finite

__all__ = ["CoarseGrainedSparse"]


class CoarseGrainedSparse(Mode):
    """Sends whole chunks, without indices (GradientFlow, arXiv 1902.06855).

    `u = m u + g; v = v + u`. The L1 norms of v's chunks are added over all ranks, so that all ranks
    choose the same fraction of chunks for the next step: sending does not wait for the norms.
    Chosen chunks of v are averaged densely and become 0 in v and u; the others stay. The momentum
    is in the
    average: the optimizer is SGD without momentum.

    It sends the chosen chunks, and 4 bytes per chunk. The first step of a bucket, for which no
    chunks were chosen, is dense.
    """

    def __init__(
        self, ratio: float = 0.1, *, chunk: int = 32_768, momentum: float = 0.9, warmup_steps: int = 0
    ) -> None:
        """Sets the amount of data.

        Args:
            ratio: The fraction of a bucket's chunks, at least one; 1 is SGD with momentum.
            chunk: Elements in a chunk; the last one of a bucket may be shorter.
            momentum: That of SGD.
            warmup_steps: Steps in which all chunks are sent.

        Raises:
            weft.ArgumentError: The fraction is not above 0 and at most 1, or the chunk is empty.
        """
        self._velocity, self._unsent = PerParameter(), PerParameter()
        super().__init__(velocity=self._velocity, unsent=self._unsent)
        if not 0 < ratio <= 1:
            raise ArgumentError(f"ratio={ratio} is not allowed: expected a fraction above 0, at most 1")
        if chunk < 1:
            raise ArgumentError(f"chunk={chunk} is not allowed: expected at least 1 element")
        self._ratio = ratio
        self._chunk = chunk
        self._momentum = momentum
        self._warmup_steps = warmup_steps
        self._important: dict[tuple[str, ...], Tensor] = {}
        """By the names of a bucket's parameters, the chunks that were chosen for its next step."""

    def average(self, bucket: Bucket, communication: Communication) -> Stages:
        """See `Mode.average`."""
        step = self._begin(bucket)
        velocity, unsent = self._velocity.of(bucket), self._unsent.of(bucket)
        unsent.add_(velocity_step(velocity, bucket.buffer, self._momentum))
        chunks = torch.split(unsent, self._chunk)
        chosen = self._chosen(bucket, step, len(chunks))
        norms = torch.stack([torch.linalg.vector_norm(chunk, 1) for chunk in chunks]).float()
        packed = torch.cat([chunks[i] for i in chosen]).div_(communication.size)
        works = [communication.all_reduce(packed), communication.all_reduce(norms)]
        for i in chosen:
            chunks[i].zero_()
        if len(chosen) < len(chunks):
            velocities = torch.split(velocity, self._chunk)
            for i in chosen:
                velocities[i].zero_()
        yield from works
        places = torch.split(bucket.buffer, self._chunk)
        bucket.buffer.zero_()
        for i, part in zip(chosen, torch.split(packed, [places[i].numel() for i in chosen]), strict=True):
            places[i].copy_(part)
        self._deliver_not_finite(bucket, norms, (velocity, unsent))
        count = max(1, round(len(chunks) * self._ratio))
        self._important[bucket.names] = norms.topk(count).indices.sort().values

    def state_dict(self) -> dict[str, Any]:
        """See `Mode.state_dict`."""
        important = [(list(names), chunks.clone()) for names, chunks in self._important.items()]
        return {**super().state_dict(), "important": important}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `Mode.load_state_dict`."""
        super().load_state_dict(state)
        self._important = {tuple(names): chunks.clone() for names, chunks in state["important"]}

    def _chosen(self, bucket: Bucket, step: int, chunks: int) -> list[int]:
        important = self._important.get(bucket.names)
        if important is None or step < self._warmup_steps:
            return list(range(chunks))
        return [int(i) for i in important]

    def _deliver_not_finite(self, bucket: Bucket, norms: Tensor, memories: tuple[Tensor, ...]) -> None:
        """Delivers NaN for chunks that overflowed on some rank and were not chosen."""
        if norms.isfinite().all():
            return
        for norm, place in zip(norms.tolist(), torch.split(bucket.buffer, self._chunk), strict=True):
            if not abs(norm) < torch.inf:
                place.fill_(torch.nan)
        for memory in memories:
            drop_not_finite(memory)
