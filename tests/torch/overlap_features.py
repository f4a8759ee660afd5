"""All features that overlapped training is tested with."""

from __future__ import annotations

import overlap_gradients  # noqa: F401
import overlap_loops  # noqa: F401
import overlap_models  # noqa: F401
from drawn import drawn
from overlap_setup import FEATURES

__all__ = ["FEATURES", "FEATURES_AND_SIZES"]


FEATURES_AND_SIZES = [(name, size) for name in FEATURES for size in (1, *drawn((2, 3, 4), 1))]
"""Each feature on 1 to 4 ranks."""
