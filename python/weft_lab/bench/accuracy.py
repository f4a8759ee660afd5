"""Error bounds of wire formats, by which `weft bench` judges results (docs/how-to/wire.md)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft_lab.bench.collectives import BenchCollective

SUMS = ("all-reduce", "reduce", "reduce-scatter")
MOVES = ("broadcast", "all-gather")
DTYPE = "float32"
"""The only elements that have wire formats."""
_ADDITION = 2.0**-23
"""The relative error of an addition as `float32`."""


@dataclass(frozen=True)
class Rounding:
    """The error of one rounding."""

    relative: float
    """Relative to the number: `u`."""
    of_block: float
    """Relative to the largest magnitude of its block of 128 elements: `η / L`."""
    least: float
    """Absolute: the least `η`."""


ROUNDINGS = {
    "fp16": Rounding(2.0**-11, 0.0, 2.0**-25),
    "bf16": Rounding(2.0**-8, 0.0, 2.0**-134),
    "fp8_e4m3": Rounding(2.0**-4, 2.0**-17, 2.0**-136),
    "fp8_e5m2": Rounding(2.0**-3, 2.0**-31, 2.0**-136),
}
"""By wire format. `full` has none."""


def refusal(wire: str, collective: str, dtype: str) -> str | None:
    """Why there is no bound for such a call, if so."""
    if collective not in (*SUMS, *MOVES):
        return f"{wire} is a wire format of {', '.join((*SUMS, *MOVES))}, not of {collective}"
    if dtype != DTYPE:
        return f"{wire} is a wire format of {DTYPE}, not of {dtype}"
    return None


def error_bound(wire: str, collective: BenchCollective, ranks: int, expected: np.ndarray) -> np.ndarray:
    """The largest error of each element of a result.

    The measured numbers are not negative, so that a sum is also the sum of magnitudes. The largest
    one of the message replaces the largest of each block.
    """
    rounding, exact = ROUNDINGS[wire], expected.astype(np.float64)
    largest = float(exact.max(initial=0.0))
    absolute = rounding.of_block * largest + rounding.least
    relative = rounding.relative
    if collective.name in SUMS:
        growth = (1 + rounding.relative) ** ranks
        relative = growth - 1 + ranks * _ADDITION
        absolute *= ranks * growth
    return np.add(relative * exact, absolute)
