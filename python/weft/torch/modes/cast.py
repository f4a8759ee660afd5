"""16-bit gradients: the elements are rounded before they are added."""

from __future__ import annotations

import torch

from weft.errors import ArgumentError
from weft.torch.modes.bucket import Bucket
from weft.torch.modes.mode import Communication, Mode, Stages

__all__ = ["Cast"]

_TYPES = (torch.float16, torch.bfloat16)


class Cast(Mode):
    """The average in 16 bits, `sum(cast(g) / P)`, as torch's `fp16_compress_hook`.

    Sums are 16 bits wide too; `Wire` adds as float32. Every rank sends 2 bytes per element, also to
    ranks of its host.
    """

    one_stage = True

    def __init__(self, dtype: torch.dtype) -> None:
        """`dtype` is `torch.float16` or `torch.bfloat16`.

        Raises:
            weft.ArgumentError: It is neither.
        """
        super().__init__()
        if dtype not in _TYPES:
            raise ArgumentError(f"dtype={dtype} is not allowed: expected one of {', '.join(map(str, _TYPES))}")
        self._dtype = dtype

    def average(self, bucket: Bucket, communication: Communication) -> Stages:
        """See `Mode.average`."""
        self._begin(bucket)
        cast = bucket.buffer.to(self._dtype).div_(communication.size)
        yield communication.all_reduce(cast)
        bucket.buffer.copy_(cast)
