"""Urgency: the priorities of a plan's buckets, so that what forward needs first arrives first.

On one network, serving the earliest deadline first waits least. A bucket's deadline is its first
use, so each would have its own priority. The native core distinguishes four levels (see
[Note: Levels of priority] in the runtime's operation.rs), so neighbours share one where that costs
least.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from weft.torch.parallel.costs import CostModel, StepProfile, order_of_use, price
from weft.torch.parallel.plan import BucketPlan

__all__ = ["LEVELS", "as_needed", "in_levels"]

LEVELS = 4
"""The priorities of buckets are below it."""
_COMPARED = 12
"""The number of groups of buckets that are compared, which bounds the time that it takes."""


def as_needed(plan: BucketPlan, profile: StepProfile) -> BucketPlan:
    """The plan with a separate priority for each bucket, the highest for the first used."""
    return _with_priorities(plan, [[number] for number in order_of_use(plan.buckets, profile.use_s)])


def in_levels(plan: BucketPlan, profile: StepProfile, costs: CostModel) -> BucketPlan:
    """The plan with the core's few priorities that make a step wait least.

    Among equally good ones, the plan in which few bytes go before more urgent ones: within a level
    buckets go in the order of their starts.
    """
    groups = _coarse(plan, [[number] for number in order_of_use(plan.buckets, profile.use_s)])
    while len(groups) > LEVELS:
        merged = [[*groups[:at], groups[at] + groups[at + 1], *groups[at + 2 :]] for at in range(len(groups) - 1)]
        prices = [
            (
                price(_with_priorities(plan, candidate), profile, costs),
                _nbytes(plan, groups[at + 1]),
                -at,
            )
            for at, candidate in enumerate(merged)
        ]
        groups = merged[prices.index(min(prices))]
    return _with_priorities(plan, groups)


def _coarse(plan: BucketPlan, groups: list[list[int]]) -> list[list[int]]:
    """Neighbours together until few enough groups are left, those with the fewest bytes first."""
    while len(groups) > _COMPARED:
        sums = [_nbytes(plan, one + other) for one, other in itertools.pairwise(groups)]
        at = sums.index(min(sums))
        groups = [*groups[:at], groups[at] + groups[at + 1], *groups[at + 2 :]]
    return groups


def _with_priorities(plan: BucketPlan, groups: Sequence[Sequence[int]]) -> BucketPlan:
    """The plan with a priority for each group, 0 for the last."""
    priority = {number: len(groups) - 1 - place for place, group in enumerate(groups) for number in group}
    buckets = (dataclasses.replace(bucket, priority=priority[n]) for n, bucket in enumerate(plan.buckets))
    return dataclasses.replace(plan, buckets=tuple(buckets))


def _nbytes(plan: BucketPlan, group: Sequence[int]) -> int:
    return sum(plan.nbytes(plan.buckets[number]) for number in group)
