"""Wire formats as a mode: elements are rounded between hosts, and added as float32."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from weft.errors import ArgumentError
from weft.settings import WIRE_FORMATS
from weft.torch.modes.bucket import Bucket
from weft.torch.modes.mode import Communication, Mode, Stages
from weft.torch.wire import wire_format

__all__ = ["Wire"]


class Wire(Mode):
    """The average in a wire format of weft's core (`weft.torch.wire_format`), else `sum(g / P)`.

    Buckets of other types than float32 are sent unchanged. The group's backend is weft.
    """

    one_stage = True

    def __init__(self, name: str) -> None:
        """`name` is `full`, `fp16`, `bf16`, `fp8_e4m3` or `fp8_e5m2`.

        Raises:
            weft.ArgumentError: There is no such format.
        """
        super().__init__()
        if name not in WIRE_FORMATS:
            raise ArgumentError(f"Wire({name!r}): expected one of {', '.join(WIRE_FORMATS)}")
        self._name = name

    @property
    def format(self) -> str:
        """The name of the format."""
        return self._name

    def average(self, bucket: Bucket, communication: Communication) -> Stages:
        """See `Mode.average`."""
        self._begin(bucket)
        gradients = bucket.buffer.div_(communication.size)
        floats = gradients.dtype == torch.float32
        asked: contextlib.AbstractContextManager[Any] = wire_format(self._name) if floats else contextlib.nullcontext()
        with asked:
            work = communication.all_reduce(gradients)
        yield work
