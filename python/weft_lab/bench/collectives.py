"""Measurable collectives and messages: inputs, expected results, bytes on the wire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

PERIOD = 8
"""Values are small whole numbers that repeat, so that every sum is exact in every element type."""


PING_PONG = "ping-pong"
BARRIER = "barrier"


@dataclass(frozen=True)
class BenchCollective:
    """One collective.

    `elements` are those of the whole message: all ranks' blocks together if there are blocks.
    """

    name: str
    in_place: bool
    blocks_in: bool
    """Whether the input is the whole message; else it is this rank's block."""
    blocks_out: bool
    expected: Callable[[int, int, int], np.ndarray | None]
    """The output of (rank, ranks, elements), or None if a rank gets none."""
    bus_factor: Callable[[int], float]
    divided: bool = True
    """Whether the message consists of one block for each rank."""

    def elements(self, wanted: int, ranks: int) -> int:
        """How many elements a message of about this many has: at least one, in equal blocks."""
        return max(1, wanted // ranks) * ranks if self.divided else max(1, wanted)

    def count(self, elements: int, ranks: int) -> int:
        """The count in libraries' calls: the elements of the message, or of one block."""
        return elements // ranks if self.divided else elements


def pattern(rank: int, elements: int) -> np.ndarray:
    """The input of a rank."""
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


def _exchanged(ranks: int, rank: int, elements: int) -> np.ndarray:
    """Block `rank` of every rank."""
    block = _block(rank, ranks, elements)
    return np.concatenate([pattern(source, elements)[block] for source in range(ranks)])


def partner(rank: int, ranks: int) -> int | None:
    """The partner of a rank in ping-pong: 0 with 1, 2 with 3; a last one without partner waits."""
    other = rank ^ 1
    return other if other < ranks else None


def _returned(rank: int, ranks: int, elements: int) -> np.ndarray | None:
    other = partner(rank, ranks)
    return None if other is None else pattern(other, elements)


def _others(ranks: int) -> float:
    return (ranks - 1) / ranks


COLLECTIVES = (
    BenchCollective(
        name="all-reduce",
        in_place=True,
        blocks_in=True,
        blocks_out=True,
        expected=lambda _, ranks, elements: _sum(ranks, elements),
        bus_factor=lambda ranks: 2 * _others(ranks),
        divided=False,
    ),
    BenchCollective(
        name="reduce",
        in_place=True,
        blocks_in=True,
        blocks_out=True,
        expected=lambda rank, ranks, elements: _sum(ranks, elements) if rank == 0 else None,
        bus_factor=lambda _: 1.0,
        divided=False,
    ),
    BenchCollective(
        name="broadcast",
        in_place=True,
        blocks_in=True,
        blocks_out=True,
        expected=lambda _rank, _ranks, elements: pattern(0, elements),
        bus_factor=lambda _: 1.0,
        divided=False,
    ),
    BenchCollective(
        name="all-gather",
        in_place=False,
        blocks_in=False,
        blocks_out=True,
        expected=lambda _, ranks, elements: _gathered(ranks, elements),
        bus_factor=_others,
    ),
    BenchCollective(
        name="reduce-scatter",
        in_place=False,
        blocks_in=True,
        blocks_out=False,
        expected=lambda rank, ranks, elements: _sum(ranks, elements)[_block(rank, ranks, elements)],
        bus_factor=_others,
    ),
    BenchCollective(
        name="all-to-all",
        in_place=False,
        blocks_in=True,
        blocks_out=True,
        expected=lambda rank, ranks, elements: _exchanged(ranks, rank, elements),
        bus_factor=_others,
    ),
    BenchCollective(
        name="gather",
        in_place=False,
        blocks_in=False,
        blocks_out=True,
        expected=lambda rank, ranks, elements: _gathered(ranks, elements) if rank == 0 else None,
        bus_factor=_others,
    ),
    BenchCollective(
        name="scatter",
        in_place=False,
        blocks_in=True,
        blocks_out=False,
        expected=lambda rank, ranks, elements: pattern(0, elements)[_block(rank, ranks, elements)],
        bus_factor=_others,
    ),
    BenchCollective(
        name=BARRIER,
        in_place=True,
        blocks_in=True,
        blocks_out=True,
        expected=lambda _rank, _ranks, _elements: None,
        bus_factor=lambda _: 0.0,
        divided=False,
    ),
    BenchCollective(
        name=PING_PONG,
        in_place=False,
        blocks_in=True,
        blocks_out=True,
        expected=_returned,
        bus_factor=lambda _: 2.0,
        divided=False,
    ),
)


OUT_OF_PLACE = ("all-reduce", "reduce")
"""Collectives whose result may replace the input or not; weft is measured both ways."""


def find(name: str) -> BenchCollective:
    """The collective of this name."""
    return next(collective for collective in COLLECTIVES if collective.name == name)
