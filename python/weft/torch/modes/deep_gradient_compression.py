"""Deep gradient compression: the largest accumulated gradients, with momentum correction."""

from __future__ import annotations

import torch
from torch import Tensor

from weft.errors import ArgumentError
from weft.torch.modes.bucket import Bucket
from weft.torch.modes.mode import Communication, Mode, Stages
from weft.torch.modes.momentum import velocity_step
from weft.torch.modes.sparse import average_sparse
from weft.torch.modes.state import PerParameter, drop_not_finite

__all__ = ["DeepGradientCompression"]

_WARMUP_STAGES = 4
_WARMUP_RATIO = 0.25  # from stage to stage: 25 %, 6.25 %, 1.6 %, 0.4 %
_SAMPLE_ELEMENTS_MIN = 256
_LOWER = 0.8
_LOWERINGS_MAX = 10


class DeepGradientCompression(Mode):
    """Sends the largest elements of the unsent gradients (arXiv 1712.01887).

    With momentum m, velocity u and unsent v: `u = m u + g; v = v + u`. The elements of v that are
    larger than a threshold, about a fraction `ratio` of every tensor, are averaged over all ranks;
    there v and u become 0 (momentum factor masking). Tensors of less than two dimensions are sent
    whole. The momentum is in the average: the optimizer is SGD without momentum.

    It sends 4 bytes for the index and the element itself for every chosen element, and 8 bytes for
    their count, per bucket; every rank receives all ranks' messages.
    """

    def __init__(
        self,
        ratio: float = 0.001,
        *,
        momentum: float = 0.9,
        nesterov: bool = False,
        clip_norm: float | None = None,
        warmup_steps: int = 0,
        sample: float = 0.01,
    ) -> None:
        """Sets the amount of data.

        Args:
            ratio: The fraction of elements; 1 sends all, which is SGD with momentum.
            momentum: That of SGD.
            nesterov: Whether it is Nesterov's.
            clip_norm: The norm to which gradients are clipped on each rank before they are
                accumulated, divided by the square root of the number of ranks: for a bucket, since
                the other buckets' gradients do not exist yet. None: no clipping.
            warmup_steps: Steps in which the fraction falls from 25 % on, by 4 in each quarter.
            sample: The fraction of elements from which the threshold is estimated.

        Raises:
            weft.ArgumentError: A fraction is not above 0 and at most 1.
        """
        self._velocity, self._unsent = PerParameter(), PerParameter()
        super().__init__(velocity=self._velocity, unsent=self._unsent)
        for name, fraction in (("ratio", ratio), ("sample", sample)):
            if not 0 < fraction <= 1:
                raise ArgumentError(f"{name}={fraction} is not allowed: expected a fraction above 0, at most 1")
        self._ratio = ratio
        self._momentum = momentum
        self._nesterov = nesterov
        self._clip_norm = clip_norm
        self._warmup_steps = warmup_steps
        self._sample = sample

    def average(self, bucket: Bucket, communication: Communication) -> Stages:
        """See `Mode.average`."""
        ratio = self._ratio_in(self._begin(bucket))
        velocity, unsent = self._velocity.of(bucket), self._unsent.of(bucket)
        gradient = self._clipped(bucket.buffer, communication.size)
        unsent.add_(velocity_step(velocity, gradient, self._momentum, self._nesterov))
        is_sparse = [ratio < 1 and parameter.dim() > 1 for parameter in bucket.parameters()]
        chosen = [
            (largest(part.abs(), ratio, self._sample) + part.storage_offset())
            for part, sparse in zip(bucket.parts(unsent), is_sparse, strict=True)
            if sparse
        ]
        dense = [part for part, sparse in zip(bucket.parts(unsent), is_sparse, strict=True) if not sparse]
        whole = torch.cat([*dense, unsent[:0]]).div_(communication.size)
        work = communication.all_reduce(whole)
        for part in dense:
            part.zero_()
        if chosen:
            index = torch.cat(chosen)
            values = unsent[index]
            unsent[index] = 0
            velocity[index] = 0
            yield from average_sparse(index, values, bucket.buffer, communication)
        yield work
        places = [p for p, sparse in zip(bucket.parts(bucket.buffer), is_sparse, strict=True) if not sparse]
        for place, part in zip(places, torch.split(whole, [part.numel() for part in places]), strict=True):
            place.copy_(part)
        if not bucket.buffer.isfinite().all():
            drop_not_finite(unsent)
            drop_not_finite(velocity)

    def _ratio_in(self, step: int) -> float:
        if step >= self._warmup_steps:
            return self._ratio
        stage = step * _WARMUP_STAGES // self._warmup_steps
        return max(self._ratio, _WARMUP_RATIO ** (stage + 1))

    def _clipped(self, gradient: Tensor, size: int) -> Tensor:
        if self._clip_norm is None:
            return gradient
        norm: Tensor = torch.linalg.vector_norm(gradient)
        scale = (self._clip_norm / size**0.5 / norm.clamp(min=1e-12)).clamp(max=1.0)
        return gradient.mul(scale)


def largest(magnitudes: Tensor, ratio: float, sample: float) -> Tensor:
    """The indices of the largest elements, about a fraction `ratio`, and of NaN and infinities.

    The threshold comes from every n-th element; after a bad estimate it is lowered, or made exact
    among the elements above it (arXiv 1712.01887, section 3.1 and appendix). Zeros are left out.
    """
    elements = magnitudes.numel()
    if elements == 0:
        return torch.empty(0, dtype=torch.int64, device=magnitudes.device)
    wanted = max(1, round(elements * ratio))
    stride = round(1 / sample) | 1  # odd, to meet all columns of most matrices
    sampled = magnitudes[::stride] if elements // stride >= _SAMPLE_ELEMENTS_MIN else magnitudes
    threshold = sampled.topk(max(1, round(sampled.numel() * ratio))).values[-1]
    chosen = _from(magnitudes, threshold)
    for _ in range(_LOWERINGS_MAX):
        if chosen.numel() * 2 >= wanted:
            break
        threshold = threshold * _LOWER
        chosen = _from(magnitudes, threshold)
    if chosen.numel() > 2 * wanted:
        chosen = chosen[magnitudes[chosen].topk(wanted).indices]
    return chosen[magnitudes[chosen] != 0]


def _from(magnitudes: Tensor, threshold: Tensor) -> Tensor:
    """The indices of elements that are not below the threshold, such as NaN."""
    return (~(magnitudes < threshold)).nonzero().view(-1)
