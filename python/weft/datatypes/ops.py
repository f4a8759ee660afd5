"""Reduction operations, with supported element types defined by the native layer."""

from __future__ import annotations

import dataclasses
from typing import Literal

__all__ = ["AverageOf", "Op", "PremulSum"]

Op = Literal["sum", "avg", "product", "min", "max", "band", "bor", "bxor"]
"""The operations without a factor: those of `_weft.operations`."""


@dataclasses.dataclass(frozen=True)
class PremulSum:
    """The sum, with each rank's contribution multiplied by that rank's factor first.

    A product is rounded to the element type before it is added.

    Sums and averages at the ends of a type's range:

    - A *sum* (`sum`, `PremulSum`) of floats is infinite if it is beyond the range of its type. It
      may also be infinite if only the sum of some contributions is, such as that of 60000, 60000
      and -60000 in `float16`: this depends on the order of the sum, and so on algorithm, size and
      placement. Sums of 16-bit floats are added in `float32` and rounded to 16 bits where they pass
      from step to step. Sums of integers wrap.
    - An *average* (`avg`) of 16-bit floats is finite if all contributions are, with every
      algorithm: partial sums may exceed the range on the way, where each rounding costs up to about
      log2 P times as much on P ranks. It is rounded as the sum is, and not divided first, so small
      contributions are not lost. An average of `float32` or `float64` is the sum times 1/P, and
      infinite if that sum is.
    - An average of *integers* is their sum, which wraps at the range of the type, divided by the
      number of ranks and truncated towards zero: four `int8` of 100 have the sum -112, the average
      -28.
    """

    factor: float


@dataclasses.dataclass(frozen=True)
class AverageOf:
    """The sum divided by a number, for ranks whose contributions are sums themselves.

    The number is the same on all ranks. For `float32` and `float64`.
    """

    contributions: int
