"""Interface of a measured library."""

from __future__ import annotations

import abc
import dataclasses
from dataclasses import dataclass

import numpy as np

from weft import _weft
from weft_lab.bench.collectives import BenchCollective
from weft_lab.bench.elements import ElementType

_ALIGNMENT_BYTES = 4096


@dataclass(frozen=True)
class Description:
    """The description of a contender in rows."""

    library: str
    version: str
    memory: str
    transport: str
    kind: str
    """`weft`, `peer` or `floor`."""
    ranks: int
    """How many ranks take part: the first ones."""
    share: float = 1.0
    """The contender's share of the time: floors vary less."""
    is_round_trip: bool = False
    """Whether it is the round trip of a flag, which is timed otherwise than calls."""
    bytes: int | None = None
    """How many bytes a call moves, if not the message's."""
    costs: bool = True
    """Whether its processor time is measured."""
    wire: str = "full"
    """The wire format."""
    out_of_place: bool = False
    """Whether the result has separate memory, if it could replace the input."""

    def to_value(self) -> dict[str, object]:
        """The JSON form."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class TimedOperation:
    """An operation that can be timed repeatedly on the same arrays."""

    input: np.ndarray
    """The arrays that are rewritten before every call."""
    output: np.ndarray | None
    """The collective's result; None if the operation is none."""
    timed: _weft.Timed


class Contender(abc.ABC):
    """A library under test, connected."""

    description: Description

    @abc.abstractmethod
    def operation(self, collective: BenchCollective, dtype: ElementType, elements: int) -> TimedOperation:
        """Prepares a collective over a message of `elements` elements.

        In place: input and output are the same.
        """

    def close(self) -> None:  # noqa: B027
        """Leaves the library's group, if it has one of its own."""


def lengths(collective: BenchCollective, elements: int, ranks: int) -> tuple[int, int]:
    """The number of elements of this rank's input and output."""
    block = elements // ranks
    return (elements if collective.blocks_in else block, elements if collective.blocks_out else block)


def array(elements: int, dtype: ElementType) -> np.ndarray:
    """Ordinary memory, from the start of a page on: the same for every library."""
    raw = np.empty(elements * dtype.itemsize + _ALIGNMENT_BYTES, np.uint8)
    begin = -raw.ctypes.data % _ALIGNMENT_BYTES
    return raw[begin : begin + elements * dtype.itemsize].view(dtype.storage)


def ordinary(
    collective: BenchCollective, dtype: ElementType, elements: int, ranks: int
) -> tuple[np.ndarray, np.ndarray]:
    """Input and output in ordinary memory."""
    count_in, count_out = lengths(collective, elements, ranks)
    source = array(count_in, dtype)
    return source, source if collective.in_place else array(count_out, dtype)
