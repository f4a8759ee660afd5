"""Reduction operations, with supported element types defined by the native layer."""

from __future__ import annotations

import dataclasses
from typing import Literal

__all__ = ["Op", "PremulSum"]

Op = Literal["sum", "avg", "product", "min", "max", "band", "bor", "bxor"]
"""The operations that a name alone says: those of `_weft.operations`."""


@dataclasses.dataclass(frozen=True)
class PremulSum:
    """The sum, with each rank's contribution multiplied by that rank's factor first."""

    factor: float
