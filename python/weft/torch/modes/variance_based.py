"""Variance-based compression: an element is sent when its sum is large against its variance."""

from __future__ import annotations

import torch
from torch import Tensor

from weft.errors import ArgumentError
from weft.torch.modes.bucket import Bucket
from weft.torch.modes.mode import Communication, Mode, Stages
from weft.torch.modes.sparse import average_sparse, check_indices
from weft.torch.modes.state import PerParameter, drop_not_finite

__all__ = ["VarianceBased"]

_INDEX_BITS = 28
_SMALLEST = 7  # three bits: by how many powers of two an element is below its tensor's largest
_NOT_FINITE = 1 << 20  # replaces an exponent


class VarianceBased(Mode):
    """Sends sums of gradients that are large against their noise (arXiv 1802.06058).

    `r = r + g; v = v + g^2`. Where `r^2 > alpha v`, r is sent and v becomes 0; elsewhere
    `v = zeta v`.

    It is an approximation: v should be the sum of squares of every sample's gradient, which torch
    does not have. Here a step's local gradient, the mean of a micro-batch, stands for one sample.
    So an element is sent when several steps agree about it: with alpha 2 at the second of equal
    gradients.

    It sends a word of 4 bytes per element: a sign, 3 bits of exponent relative to the largest sent
    element of its tensor, and an index of 28 bits; and 4 bytes per tensor and bucket. The rounding
    error stays in r (in the paper it is lost).
    """

    def __init__(self, alpha: float = 2.0, zeta: float = 0.999, *, quantize: bool = True) -> None:
        """Sets the condition for sending.

        Args:
            alpha: How far the square of the sum must be above the sum of squares; 0 sends all.
            zeta: The factor by which the sum of squares decays.
            quantize: Whether values are rounded to powers of two. If not, they are sent unrounded,
                with 4 bytes for the index.

        Raises:
            weft.ArgumentError: A number is negative, or zeta is above 1.
        """
        self._residual, self._variance = PerParameter(), PerParameter()
        super().__init__(residual=self._residual, variance=self._variance)
        if alpha < 0:
            raise ArgumentError(f"alpha={alpha} is not allowed: expected at least 0")
        if not 0 <= zeta <= 1:
            raise ArgumentError(f"zeta={zeta} is not allowed: expected 0 to 1")
        self._alpha = alpha
        self._zeta = zeta
        self._quantize = quantize

    def average(self, bucket: Bucket, communication: Communication) -> Stages:
        """See `Mode.average`."""
        self._begin(bucket)
        check_indices(bucket.buffer.numel(), _INDEX_BITS)
        residual, variance = self._residual.of(bucket), self._variance.of(bucket)
        residual.add_(bucket.buffer)
        variance.addcmul_(bucket.buffer, bucket.buffer)
        quiet = (residual * residual <= self._alpha * variance) & residual.isfinite()
        chosen = (~quiet & (residual != 0)).nonzero().view(-1)
        variance.mul_(self._zeta)
        if self._quantize:
            yield from self._average_words(chosen, bucket, communication)
        else:
            values = residual[chosen]
            residual[chosen] = 0
            variance[chosen] = 0
            yield from average_sparse(chosen, values, bucket.buffer, communication)
        if not bucket.buffer.isfinite().all():
            drop_not_finite(residual)
            drop_not_finite(variance)

    def _average_words(self, chosen: Tensor, bucket: Bucket, communication: Communication) -> Stages:
        residual, variance = self._residual.of(bucket), self._variance.of(bucket)
        lengths = [parameter.numel() for parameter in bucket.parameters()]
        ends = torch.tensor(lengths, dtype=torch.int64, device="cpu").cumsum(0)
        words, exponents = encoded(chosen, residual[chosen], ends)
        index, values = decoded(words, exponents, ends, residual.dtype)
        residual.index_add_(0, index, -values)
        variance[index] = 0
        own = torch.cat([torch.tensor([words.numel()], dtype=torch.int64, device="cpu"), exponents]).to(torch.int32)
        headers = torch.empty(communication.size, own.numel(), dtype=torch.int32, device="cpu")
        yield communication.all_gather(headers.unbind(), own)
        messages = [torch.empty(int(header[0]), dtype=torch.int32, device="cpu") for header in headers]
        yield communication.all_gather(messages, words)
        bucket.buffer.zero_()
        for header, message in zip(headers, messages, strict=True):
            index, values = decoded(message, header[1:].long(), ends, residual.dtype)
            bucket.buffer.index_add_(0, index, values)
        bucket.buffer.div_(communication.size)


def encoded(index: Tensor, values: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    """Words of values that are not 0, and every tensor's exponent.

    Values are rounded to the nearest power of two. Those more than 7 powers of two below the
    largest of their tensor are left out. If a tensor has values that are not finite, only these are
    sent.


    Args:
        index: Places in the bucket, int64.
        values: As many values.
        ends: The end of each parameter's elements.

    Returns:
        Words, int32; exponents by tensor, int64.
    """
    owner = torch.bucketize(index, ends, right=True)
    mantissa, exponent = torch.frexp(values)
    exponent = exponent.long() - (mantissa.abs() < 0.75).long()
    exponent = torch.where(values.isfinite(), exponent, _NOT_FINITE)
    exponents = torch.full_like(ends, -_NOT_FINITE).scatter_reduce_(0, owner, exponent, "amax")
    below = exponents[owner] - exponent
    sent = below <= _SMALLEST
    word = (values.signbit().long() << 31) | (below << _INDEX_BITS) | index
    return word[sent].to(torch.int32), exponents


def decoded(words: Tensor, exponents: Tensor, ends: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The places and values of words; NaN where the tensor's exponent stands for it."""
    bits = words.long() & 0xFFFFFFFF
    index = bits & ((1 << _INDEX_BITS) - 1)
    largest = exponents[torch.bucketize(index, ends, right=True)]
    exponent = largest - ((bits >> _INDEX_BITS) & _SMALLEST)
    sign = 1 - 2 * (bits >> 31)
    values = torch.ldexp(sign.to(torch.float64), exponent).to(dtype)
    values[largest == _NOT_FINITE] = torch.nan
    return index, values
