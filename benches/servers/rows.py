"""Results of the benchmark of parameter servers."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["KilledRow", "LineRow", "TrainedWorker", "UnequalRow"]


@dataclasses.dataclass(frozen=True)
class TrainedWorker:
    """A worker's steps: when each ended, in seconds since the start of all, and its loss."""

    samples: int
    """Of a step."""
    steps: Sequence[tuple[float, float]]
    staleness: Sequence[Any]
    """The staleness of its pushes, as each server reports it."""

    def within(self, begin: float, end: float) -> list[float]:
        """Losses of the steps that ended between two times."""
        return [loss for at, loss in self.steps if begin < at <= end]


@dataclasses.dataclass(frozen=True)
class UnequalRow:
    """A training at one staleness; the slow worker is the last."""

    staleness: int | None
    seconds: float
    workers: Sequence[TrainedWorker]

    @property
    def rate(self) -> float:
        """Samples per second of all."""
        return self._rate(0.0, self.seconds)

    def rates(self) -> list[float]:
        """The same, second by second."""
        return [self._rate(begin, end) for begin, end in self._each_second()]

    def losses(self) -> list[float]:
        """The mean loss of all steps of a second; not a number where there are none."""
        found = []
        for begin, end in self._each_second():
            here = [loss for worker in self.workers for loss in worker.within(begin, end)]
            found.append(statistics.fmean(here) if here else float("nan"))
        return found

    def _rate(self, begin: float, end: float) -> float:
        samples = sum(worker.samples * len(worker.within(begin, end)) for worker in self.workers)
        return samples / (end - begin)

    def _each_second(self) -> Iterator[tuple[float, float]]:
        return ((float(second), second + 1.0) for second in range(int(self.seconds)))


@dataclasses.dataclass(frozen=True)
class KilledRow:
    """A training whose server was killed and immediately restarted."""

    killed_s: float
    """After the start."""
    resumed_s: float
    """From then on until every worker had done three steps: the first needs no answer."""
    loss_before: float
    """The mean of twenty steps."""
    loss_after: float
    same: bool
    """Whether every loss is, bit by bit, that of the training that was not disturbed."""

    @staticmethod
    def of(killed_s: float, workers: Sequence[TrainedWorker], undisturbed: Sequence[TrainedWorker]) -> KilledRow:
        """Returns the row of a training, compared with one that was not disturbed."""
        resumed = [[at for at, _ in worker.steps if at > killed_s][_SURE] for worker in workers]
        losses = [[loss for _, loss in worker.steps] for worker in workers]
        before = len(workers[0].within(0.0, killed_s))
        return KilledRow(
            killed_s=killed_s,
            resumed_s=max(resumed) - killed_s,
            loss_before=statistics.fmean(losses[0][max(0, before - _COMPARED) : before]),
            loss_after=statistics.fmean(losses[0][before : before + _COMPARED]),
            same=losses == [[loss for _, loss in worker.steps] for worker in undisturbed],
        )


@dataclasses.dataclass(frozen=True)
class LineRow:
    """One contender's time of a step at a line rate, in one round."""

    name: str
    """`ring` and `localps` (the schedule) among the workers, `default` with a server apart."""
    nbytes: int
    number: int
    seconds: float
    """Of the slowest rank."""


_SURE = 2
_COMPARED = 20
