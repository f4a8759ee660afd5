"""The collectives that can be measured: what goes in, what must come out, what the wire carries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

PERIOD = 8
"""Values are small whole numbers that repeat, so that every sum is exact in every element type."""


@dataclass(frozen=True)
class Collective:
    """One collective. `elements` is the whole message's: all ranks' blocks together where there are blocks."""

    name: str
    in_place: bool
    blocks_in: bool
    """Whether the input is the whole message; else it is this rank's block."""
    blocks_out: bool
    expected: Callable[[int, int, int], np.ndarray]
    """The output of (rank, ranks, elements)."""
    bus_factor: Callable[[int], float]


def pattern(rank: int, elements: int) -> np.ndarray:
    """What rank `rank` puts in."""
    return _repeated((np.arange(PERIOD, dtype=np.int16) + 3 * rank) % PERIOD, elements)


def _sum(ranks: int, elements: int) -> np.ndarray:
    patterns = np.stack([pattern(rank, PERIOD) for rank in range(ranks)])
    return _repeated(patterns.sum(axis=0, dtype=np.int16), elements)


def _repeated(values: np.ndarray, elements: int) -> np.ndarray:
    return np.tile(values, -(-elements // PERIOD))[:elements]


def _block(rank: int, ranks: int, elements: int) -> slice:
    return slice(rank * (elements // ranks), (rank + 1) * (elements // ranks))


def _gathered(ranks: int, elements: int) -> np.ndarray:
    return np.concatenate([pattern(rank, elements // ranks) for rank in range(ranks)])


COLLECTIVES = (
    Collective(
        name="all-reduce",
        in_place=True,
        blocks_in=True,
        blocks_out=True,
        expected=lambda _, ranks, elements: _sum(ranks, elements),
        bus_factor=lambda ranks: 2 * (ranks - 1) / ranks,
    ),
    Collective(
        name="broadcast",
        in_place=True,
        blocks_in=True,
        blocks_out=True,
        expected=lambda _rank, _ranks, elements: pattern(0, elements),
        bus_factor=lambda _: 1.0,
    ),
    Collective(
        name="all-gather",
        in_place=False,
        blocks_in=False,
        blocks_out=True,
        expected=lambda _, ranks, elements: _gathered(ranks, elements),
        bus_factor=lambda ranks: (ranks - 1) / ranks,
    ),
    Collective(
        name="reduce-scatter",
        in_place=False,
        blocks_in=True,
        blocks_out=False,
        expected=lambda rank, ranks, elements: _sum(ranks, elements)[_block(rank, ranks, elements)],
        bus_factor=lambda ranks: (ranks - 1) / ranks,
    ),
)


def find(name: str) -> Collective:
    """The collective of this name."""
    return next(collective for collective in COLLECTIVES if collective.name == name)
