"""Names of collectives in options: weft's, and the usual spellings of others."""

from __future__ import annotations

__all__ = ["usual"]

_OTHERS = {"bcast": "broadcast", "alltoall": "all-to-all", "pingpong": "ping-pong"}
"""The names in MPI and NCCL, without hyphens."""
_NAMES = (
    "all-reduce",
    "reduce",
    "broadcast",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "gather",
    "scatter",
    "barrier",
    "ping-pong",
)
_BY_LETTERS = {name.replace("-", ""): name for name in _NAMES} | _OTHERS


def usual(text: str) -> str:
    """Weft's name for `allreduce`, `all_reduce` or `AllReduce`; other names unchanged."""
    return _BY_LETTERS.get(text.lower().replace("-", "").replace("_", ""), text)
