"""Rows of the compression benchmark."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class CompressionRow:
    """One way of averaging at one line rate."""

    gbps: float
    contender: str
    reference: str
    """The contender that averages exactly with the same kind of optimizer."""
    step_ms: float
    """The mean over all steps, by rank 0's clock."""
    steps: int | None
    """To the loss; None if it was not reached."""
    seconds: float | None
    """The same."""
    loss: float
    """At the end."""

    def to_value(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)
