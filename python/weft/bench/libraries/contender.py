"""What every library must be able to do in order to be measured."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from weft.bench.collectives import Collective


@dataclass(frozen=True)
class Meeting:
    """This process's place in the run, and where the library's ranks meet."""

    rank: int
    ranks: int
    host: str
    port: int


@dataclass(frozen=True)
class Operation:
    """A collective that is ready to be called again and again on the same arrays."""

    input: np.ndarray
    output: np.ndarray
    call: Callable[[], object]


class Contender(abc.ABC):
    """A library under test, connected."""

    library: str
    version: str
    memory: str
    transport: str

    @abc.abstractmethod
    def operation(self, collective: Collective, dtype: np.dtype, elements: int) -> Operation:
        """Prepares a collective over a message of `elements` elements. In place: input and output are the same."""

    @abc.abstractmethod
    def close(self) -> None:
        """Leaves the library's group."""


def lengths(collective: Collective, elements: int, ranks: int) -> tuple[int, int]:
    """The number of elements of this rank's input and output."""
    block = elements // ranks
    return (elements if collective.blocks_in else block, elements if collective.blocks_out else block)
