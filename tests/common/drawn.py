"""Parameters of tests of which `make test` runs some, drawn anew in every run."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def drawn(values: Sequence[T], count: int) -> list[T]:
    """All values, or `count` of them, in their order, if `DRAWN` is set."""
    if "DRAWN" not in os.environ:
        return list(values)
    return [values[place] for place in sorted(random.sample(range(len(values)), count))]
