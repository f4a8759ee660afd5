"""Rows of a report: a bucket, a layer."""

from __future__ import annotations

import dataclasses

from weft.torch.parallel.layers import LayerWindow

__all__ = ["BucketReport", "LayerReport"]


@dataclasses.dataclass(frozen=True)
class BucketReport:
    """One bucket, as the median of the last steps. Times are in seconds."""

    bucket: int
    parameters: tuple[str, ...]
    nbytes: int
    """Of its gradients."""
    sent_bytes: int
    """The bytes that this rank has sent for its last average, with flags of unused parameters."""
    algorithm: str
    """The algorithm or mode that averaged it; `not recorded` if no operation is on record."""
    priority: int
    window_s: float | None
    """From the start of its average until somebody needed it; None if nobody has."""
    communication_s: float | None
    """From the beginning of its operation to the end; None if none is on record."""
    exposed_s: float | None
    """How long the training waited for it; None if nobody has waited yet."""


@dataclasses.dataclass(frozen=True)
class LayerReport(LayerWindow):
    """A layer's window, and what its buckets take as the median of the last steps."""

    algorithms: tuple[str, ...]
    """The algorithms that average its buckets."""
    communication_s: float
    """The time of their operations, which may carry other layers too."""
    exposed_s: float
    """How long forward waits for it."""
