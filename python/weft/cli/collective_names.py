"""Names of collectives as options take them: weft's, and the usual spellings of others."""

from __future__ import annotations

__all__ = ["usual"]

_OTHERS = {"bcast": "broadcast", "alltoall": "all-to-all", "pingpong": "ping-pong"}
"""What else MPI and NCCL call them, without hyphens."""
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
    """Weft's name of what is spelt `allreduce`, `all_reduce` or `AllReduce`; others as they are."""
    return _BY_LETTERS.get(text.lower().replace("-", "").replace("_", ""), text)
