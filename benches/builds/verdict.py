"""Verdicts on a new build: geometric means of groups, and cells beyond the old build's variation.

In every round, the new build's time is divided by the geometric mean of the two that the old
build's worker groups took, and the control's by that of the other one of the same build. A cell's
ratio is the median over its rounds.

The control says how far a ratio may be from 1 by chance. Its distance in standard errors, which the
rounds of the cell yield, is known for every cell; the bound is the distance that 99 % of the cells
keep, times the cell's standard error.

Of hundreds of cells some are beyond their bound by chance. So misses are measured again, and count
only if they repeat.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence

from benches.builds.measuring import BuildRow
from benches.builds.settings import BuildCell, CellGroup

GROUP_MAX = 1.01
_CONFIDENCE = 0.99
_TO_STANDARD_DEVIATION = 1.4826
"""The factor from median absolute to standard deviation, for a normal distribution."""
_MEDIAN_TO_MEAN = 1.2533
"""The ratio of a median's standard error to a mean's, for a normal distribution."""
_ERROR_MIN = 1e-4


@dataclasses.dataclass(frozen=True)
class CellVerdict:
    """One cell."""

    cell: BuildCell
    new: float
    """New over old."""
    control: float
    """Old over old."""
    bound: float
    """The 99 % bound of old over old."""
    again: float | None = None
    """New over old when measured again; None if it was not."""

    @property
    def is_beyond(self) -> bool:
        """Whether the new build is slower than chance explains, whenever measured."""
        return self.new > self.bound and (self.again is None or self.again > self.bound)


@dataclasses.dataclass(frozen=True)
class GroupVerdict:
    """Some ranks, transport, level and memory: all sizes."""

    group: CellGroup
    new: float
    """Geometric mean of new over old."""
    control: float
    """Geometric mean of old over old."""
    again: float | None
    """Geometric mean of new over old when measured again; None if not all cells were."""
    worst: CellVerdict

    @property
    def is_met(self) -> bool:
        """Whether the new build is as fast as the old one, all sizes together."""
        return self.new <= GROUP_MAX or (self.again is not None and self.again <= GROUP_MAX)


def cells(rows: Sequence[BuildRow]) -> list[CellVerdict]:
    """The verdict on every cell."""
    errors = _errors(rows)
    controls = [_median_log(control_ratios(row)) for row in rows]
    distance = quantile([abs(log) / error for log, error in zip(controls, errors, strict=True)], _CONFIDENCE)
    return [
        CellVerdict(row.cell, math.exp(_median_log(new_ratios(row))), math.exp(control), math.exp(distance * error))
        for row, control, error in zip(rows, controls, errors, strict=True)
    ]


def groups(verdicts: Sequence[CellVerdict]) -> list[GroupVerdict]:
    """The verdict on every group."""
    members: dict[CellGroup, list[CellVerdict]] = {}
    for verdict in verdicts:
        members.setdefault(verdict.cell.group, []).append(verdict)
    return [
        GroupVerdict(
            group,
            statistics.geometric_mean(one.new for one in same),
            statistics.geometric_mean(one.control for one in same),
            _mean_again(same),
            max(same, key=lambda one: one.new / one.bound),
        )
        for group, same in members.items()
    ]


def doubtful(verdicts: Sequence[CellVerdict]) -> list[BuildCell]:
    """Cells to be measured again: those beyond their bound, and all of groups that miss theirs."""
    missed = {group.group for group in groups(verdicts) if not group.is_met}
    return [one.cell for one in verdicts if one.is_beyond or one.cell.group in missed]


def settled(verdicts: Sequence[CellVerdict], again: Sequence[BuildRow]) -> list[CellVerdict]:
    """Returns the verdicts, with the repeated measurements."""
    found = {row.cell: math.exp(_median_log(new_ratios(row))) for row in again}
    return [dataclasses.replace(one, again=found.get(one.cell)) for one in verdicts]


def new_ratios(row: BuildRow) -> list[float]:
    """New over old, in every round."""
    return [
        new / math.sqrt(old * control)
        for old, new, control in zip(row.us["old"], row.us["new"], row.us["control"], strict=True)
    ]


def control_ratios(row: BuildRow) -> list[float]:
    """Old over old, in every round."""
    return [control / old for old, control in zip(row.us["old"], row.us["control"], strict=True)]


def quantile(values: Sequence[float], fraction: float) -> float:
    """The smallest value that this fraction of the values does not exceed."""
    return sorted(values)[max(0, math.ceil(fraction * len(values)) - 1)]


def _mean_again(verdicts: Sequence[CellVerdict]) -> float | None:
    found = [one.again for one in verdicts if one.again is not None]
    return statistics.geometric_mean(found) if len(found) == len(verdicts) else None


def _errors(rows: Sequence[BuildRow]) -> list[float]:
    """The standard error of each cell's control.

    No less than its group's median, as few rounds may agree by chance.
    """
    own = [_standard_error(control_ratios(row)) for row in rows]
    usual: dict[CellGroup, list[float]] = {}
    for row, error in zip(rows, own, strict=True):
        usual.setdefault(row.cell.group, []).append(error)
    return [max(error, statistics.median(usual[row.cell.group])) for row, error in zip(rows, own, strict=True)]


def _standard_error(ratios: Sequence[float]) -> float:
    logs = [math.log(ratio) for ratio in ratios]
    middle = statistics.median(logs)
    deviation = _TO_STANDARD_DEVIATION * statistics.median(abs(log - middle) for log in logs)
    return max(_ERROR_MIN, _MEDIAN_TO_MEAN * deviation / math.sqrt(len(logs)))


def _median_log(ratios: Sequence[float]) -> float:
    return statistics.median(math.log(ratio) for ratio in ratios)
