"""All features that overlapped training is tested with."""

from __future__ import annotations

import random

import overlap_gradients  # noqa: F401
import overlap_loops  # noqa: F401
import overlap_models  # noqa: F401
from overlap_setup import FEATURES, STEPS

__all__ = ["FEATURES", "FEATURES_AND_SIZES"]


def _sizes() -> tuple[int, ...]:
    return (1, 2, 3, 4) if STEPS >= 100 else (1, random.randint(2, 4))


FEATURES_AND_SIZES = [(name, size) for name in FEATURES for size in _sizes()]
"""Each feature on 1 to 4 ranks; in `make test`, on one and on a number drawn in every run."""
