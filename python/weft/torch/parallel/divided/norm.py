"""The norm of all gradients, with the same bits on any number of ranks.

Each tensor is cut into blocks of a fixed size, from its beginning. The sums of squares of blocks
are added exactly, as whole numbers, so that it does not matter which rank has which block.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from weft.torch.parallel.communication import Communication
from weft.torch.parallel.divided import division

__all__ = ["norm_of"]

_SHIFT = 1074
"""The smallest float64 is 2 to the power of minus this."""


def norm_of(whole: Iterable[Tensor], pieces: Iterable[Tensor], communication: Communication | None) -> float:
    """The 2-norm of gradients, computed in float64.

    Args:
        whole: Flat gradients that are the same on all ranks.
        pieces: Flat parts of other gradients, which begin at a block, and which this rank alone
            has.
        communication: The ranks, all of which call it; None if there are no pieces.
    """
    total = _exact_squares(whole)
    if communication is not None:
        sums = communication.gather(_text(_exact_squares(pieces)), str)
        found = [None if text == "" else int(text, 16) for text in sums]
        total = None if total is None or None in found else total + sum(part or 0 for part in found)
    if total is None:
        return math.nan
    try:
        return math.sqrt(total / (1 << _SHIFT))
    except OverflowError:
        return math.inf


def _exact_squares(gradients: Iterable[Tensor]) -> int | None:
    """The sum of the blocks' sums of squares, times 2 ** 1074; None if one is not finite."""
    total = 0
    for gradient in gradients:
        for block in torch.split(gradient, division.BLOCK_ELEMENTS):
            square = float(torch.linalg.vector_norm(block, dtype=torch.float64)) ** 2
            if not math.isfinite(square):
                return None
            above, below = square.as_integer_ratio()  # `below` is a power of 2
            total += above * ((1 << _SHIFT) // below)
    return total


def _text(number: int | None) -> str:
    return "" if number is None else f"{number:x}"
