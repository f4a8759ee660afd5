"""Ticks of an axis."""

from __future__ import annotations

import math

__all__ = ["round_ticks"]

_MOST = 12


def round_ticks(end: float) -> list[float]:
    """About ten round numbers from 0 to `end`, which is positive."""
    power = 10.0 ** math.floor(math.log10(end / 10))
    step = next(power * factor for factor in (1, 2, 5, 10) if end / (power * factor) <= _MOST)
    return [step * index for index in range(int(end / step) + 1)]
