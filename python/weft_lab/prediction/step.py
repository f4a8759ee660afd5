"""Timeline of a training step: one thread of computation beside one network.

Pure functions. The network carries one bucket at a time, the most urgent one that has started, by
the priorities of weft's core. Communication takes processor time, of which the rank has a number of
cores: while both run, each is slowed by the other's share, and communication gets no more than a
fair share.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterable, Sequence

__all__ = ["Compute", "Item", "Operation", "Start", "StepTime", "Wait", "run"]

_ROUNDING = 1e-12
"""In seconds; less than this counts as nothing."""


@dataclasses.dataclass(frozen=True)
class Compute:
    """Computation that takes this many seconds alone."""

    seconds: float


@dataclasses.dataclass(frozen=True)
class Start:
    """Starts an operation, by its number."""

    operation: int


@dataclasses.dataclass(frozen=True)
class Wait:
    """Waits for the end of an operation, by its number."""

    operation: int


Item = Compute | Start | Wait
"""The items of the computing thread, one after the other."""


@dataclasses.dataclass(frozen=True)
class Operation:
    """Communication of one bucket."""

    seconds: float
    """Its time without anything beside it."""
    processor_s: float
    """The core time in it."""
    priority: int = 0
    """Operations with a higher one go first and overtake those under way."""


@dataclasses.dataclass(frozen=True)
class StepTime:
    """The time of a step, in seconds."""

    total_s: float
    computed_s: float
    """Its computation alone."""
    waited_s: float
    """How long it only waited for communication."""

    @property
    def slowed_s(self) -> float:
        """How much longer computation took because of communication."""
        return max(self.total_s - self.computed_s - self.waited_s, 0.0)


def run(items: Iterable[Item], operations: Sequence[Operation], cores: float) -> StepTime:
    """Runs a step on a rank with this many cores (or such a share of one).

    An operation is waited for after its start, if at all. Operations without a wait cost processor
    time only as far as they are under way by the end.
    """
    network = _Network(operations, cores)
    computed = waited = 0.0
    for item in items:
        match item:
            case Compute(seconds):
                network.beside(seconds)
                computed += seconds
            case Start(operation):
                network.start(operation)
            case Wait(operation):
                waited += network.until(operation)
    return StepTime(network.clock, computed, waited)


class _Network:
    """The operations under way."""

    def __init__(self, operations: Sequence[Operation], cores: float) -> None:
        self.clock = 0.0
        self._operations = operations
        self._remaining = [operation.seconds for operation in operations]
        self._active: list[tuple[int, int]] = []
        self._started: set[int] = set()
        self._cores = cores
        # Of c cores, c computing threads and one that communicates get equal parts; of less than
        # one, computation and communication get half each.
        self._fair = cores / (max(cores, 1.0) + 1.0)

    def start(self, number: int) -> None:
        self._started.add(number)
        heapq.heappush(self._active, (-self._operations[number].priority, number))

    def beside(self, seconds: float) -> None:
        """Advances the time until this much has been computed."""
        while seconds > _ROUNDING:
            if not self._active:
                self.clock += seconds
                return
            _, served = self._active[0]
            communicating, computing = self._speeds(self._operations[served])
            passed = min(seconds / computing, self._remaining[served] / communicating)
            seconds -= passed * computing
            self._pass(served, passed, communicating)

    def until(self, number: int) -> float:
        """Advances the time until an operation has ended; returns the waiting time."""
        if number not in self._started:
            raise ValueError(f"operation {number} is waited for before its start")
        before = self.clock
        while any(number == active for _, active in self._active):
            _, served = self._active[0]
            self._pass(served, self._remaining[served], 1.0)
        return self.clock - before

    def _pass(self, served: int, seconds: float, speed: float) -> None:
        self.clock += seconds
        self._remaining[served] -= seconds * speed
        if self._remaining[served] <= _ROUNDING:
            heapq.heappop(self._active)

    def _speeds(self, operation: Operation) -> tuple[float, float]:
        """The speeds of communication and of computation beside each other, relative to alone."""
        if operation.processor_s <= 0 or operation.seconds <= 0:
            return 1.0, 1.0
        demand = operation.processor_s / operation.seconds  # cores
        communicating = min(1.0, self._fair / demand)
        return communicating, 1.0 - communicating * demand / self._cores
