"""All features that overlapped training is tested with."""

from __future__ import annotations

import overlap_gradients  # noqa: F401
import overlap_loops  # noqa: F401
import overlap_models  # noqa: F401
from overlap_setup import FEATURES

__all__ = ["FEATURES"]
