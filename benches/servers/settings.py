"""Contents and durations of the benchmark of parameter servers."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FULL", "LINE_GBPS", "LINE_WORKERS", "QUICK", "RATE", "SHARES", "SLOWER", "STALENESSES", "ServerEffort"]

SLOWER = 3
SHARES = (0.42, 0.42, 0.42, 0.42 / SLOWER)
"""Of a processor, of each worker: all of them and the server fit into two."""
STALENESSES = (0, 4, None)
LINE_GBPS = 1.0
LINE_WORKERS = 4
RATE = 0.05
"""The learning rate with staleness 0."""


@dataclass(frozen=True)
class ServerEffort:
    """How much is measured."""

    rounds: int
    seconds: float
    """Of a training with a slow worker."""
    kills: int
    steps: int
    """Settings of a training whose server is killed."""
    sizes: tuple[int, ...]
    """Of messages on emulated hosts, in bytes."""
    calls: int
    """Of each contender at each size and round there."""


FULL = ServerEffort(rounds=5, seconds=20.0, kills=5, steps=400, sizes=(4 << 20, 16 << 20, 64 << 20, 256 << 20), calls=3)
QUICK = ServerEffort(rounds=1, seconds=4.0, kills=1, steps=60, sizes=(4 << 20,), calls=2)
