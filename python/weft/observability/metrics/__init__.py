"""Counters of a process for Prometheus, at an address or in a file (docs/how-to/operations.md)."""

from weft.observability.metrics.exposition import METRICS
from weft.observability.metrics.publisher import Publisher

__all__ = ["METRICS", "Publisher"]
