"""Fusion: policies that make a bucket plan from parameters, a profile and a cost model.

Pure functions: ranks with the same arguments get the same plan.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from weft.errors import ArgumentError
from weft.torch.parallel.costs import CostModel, StepProfile, price, update_seconds
from weft.torch.parallel.plan import BucketPlan, ParameterInfo, PlannedBucket
from weft.torch.parallel.urgency import as_needed, in_levels

__all__ = ["LAZY_BYTES", "PlanOptions", "make_plan"]

LAZY_BYTES = 4 << 20
"""The bytes of gradients at which lazy fusion sends them."""

_THRESHOLDS = (0, *(1 << power for power in range(14, 26)))
"""Sizes of buckets that automatic fusion compares: none, 16 KiB to 32 MiB."""

_LATENCY_SHARE = 0.1
"""The share of latency in a bucket's time, before a step was measured."""

_UNDIVIDED_SHARE = 0.02
"""The most of a model's bytes that the planner leaves undivided where updates are divided."""

_HYBRID_BYTES = 4 << 20
"""The published hybrid sends layers above it, the fully connected ones of AlexNet except the last,
by the ring, and those up to it by the butterfly.
"""

_HYBRID = ("halving-doubling", "ring")


@dataclasses.dataclass(frozen=True)
class PlanOptions:
    """The user's options for plans."""

    fusion: str | int = "automatic"
    """`none`, `automatic`, `lazy`, or the bytes of a bucket."""
    algorithm: str = "automatic"
    """`automatic` (the group's choice for the size), `hybrid`, or the name of an all-reduce."""

    def __post_init__(self) -> None:
        number = isinstance(self.fusion, int) and not isinstance(self.fusion, bool) and self.fusion > 0
        if not number and self.fusion not in ("none", "automatic", "lazy"):
            raise ArgumentError(
                f"fusion={self.fusion!r}: expected 'none', 'automatic', 'lazy', or a positive number of bytes"
            )

    @property
    def learns(self) -> bool:
        """Whether measured steps change the plan."""
        return self.fusion in ("automatic", "lazy")


def make_plan(
    parameters: Sequence[ParameterInfo],
    options: PlanOptions,
    costs: CostModel | None = None,
    profile: StepProfile | None = None,
    rows: Collection[int] = (),
) -> BucketPlan:
    """The plan for these parameters.

    Args:
        parameters: All trained parameters, in the model's order.
        options: The user's options.
        costs: Times of all-reduces; for automatic fusion.
        profile: The times of gradients and of uses of parameters. Without it, gradients are assumed
            to be computed in the reverse of the model's order.
        rows: The places of those that are exchanged by rows: each has its own bucket.

    Returns:
        The plan, with its buckets in the order of their last gradients.
    """
    order = _order_of_completion(parameters, profile)
    if options.fusion != "automatic" or costs is None:
        plan = _plan(parameters, order, _threshold(options.fusion), options, rows)
    elif profile is None:
        plan = _plan(parameters, order, _bytes_for(costs), options, rows)
    else:
        candidates = [_plan(parameters, order, threshold, options, rows) for threshold in _THRESHOLDS]
        prices = [_price(candidate, profile, costs) for candidate in candidates]
        plan = candidates[prices.index(min(prices))]
        if profile.division is not None and profile.division.chosen:
            plan = _with_undivided(plan, profile, costs)
    if profile is None:
        profile, costs = _even_profile(len(parameters)), None
    return in_levels(plan, profile, costs or _even_costs(parameters, profile))


def _threshold(fusion: str | int) -> int:
    if isinstance(fusion, int):
        return fusion
    return 0 if fusion == "none" else LAZY_BYTES


def _bytes_for(costs: CostModel) -> int:
    """A size for which latency is a small share of the time."""
    if costs.seconds_per_byte <= 0:
        return LAZY_BYTES
    nbytes = costs.latency_s * (1 - _LATENCY_SHARE) / _LATENCY_SHARE / costs.seconds_per_byte
    return int(min(max(nbytes, _THRESHOLDS[1]), _THRESHOLDS[-1]))


def _price(plan: BucketPlan, profile: StepProfile, costs: CostModel) -> tuple[float, int]:
    """The time that a step waits, plus a small share of the latency of hidden operations.

    Updates that are not divided count as well. Among equally good plans, the one with the fewest
    operations is the cheapest.
    """
    waits_s = price(as_needed(plan, profile), profile, costs)
    operations = len(plan.buckets) + sum(profile.divides(plan, bucket) for bucket in plan.buckets)
    price_s = waits_s + update_seconds(plan, profile) + 0.1 * costs.latency_s * operations
    return round(price_s, 6), operations


def _with_undivided(plan: BucketPlan, profile: StepProfile, costs: CostModel) -> BucketPlan:
    """The plan with undivided buckets, the smallest first, where that is cheaper.

    They have few bytes together, so that the optimizer's state stays divided; except where averages
    have fewer bytes than parameters, so that dividing lets ranks send more.
    """
    nbytes = [plan.nbytes(bucket) for bucket in plan.buckets]
    left = sum(nbytes) * (_UNDIVIDED_SHARE if costs.exact_s_per_byte is None else 1.0)
    best = _price(plan, profile, costs)
    for number in sorted(range(len(nbytes)), key=lambda number: nbytes[number]):
        left -= nbytes[number]
        if left < 0:
            break
        if not profile.divides(plan, plan.buckets[number]):
            continue
        undivided = dataclasses.replace(plan.buckets[number], undivided=True)
        candidate = dataclasses.replace(plan, buckets=(*plan.buckets[:number], undivided, *plan.buckets[number + 1 :]))
        if (found := _price(candidate, profile, costs)) < best:
            plan, best = candidate, found
    return plan


def _even_profile(parameters: int) -> StepProfile:
    """The profile before steps were measured: equal times, in the model's order."""
    use_s = tuple(float(index) for index in range(parameters))
    ready_s = tuple(2.0 * (parameters - index) for index in range(parameters))
    return StepProfile(ready_s, use_s, 2.0 * parameters, float(parameters))


def _even_costs(parameters: Sequence[ParameterInfo], profile: StepProfile) -> CostModel:
    """The costs before measurement: communication takes as long as computation."""
    nbytes = sum(parameter.nbytes for parameter in parameters)
    return CostModel(0.0, (profile.forward_s + profile.backward_s) / max(nbytes, 1))


def _order_of_completion(parameters: Sequence[ParameterInfo], profile: StepProfile | None) -> list[int]:
    backwards = range(len(parameters) - 1, -1, -1)
    if profile is None:
        return list(backwards)
    return sorted(backwards, key=lambda index: profile.ready_s[index])


def _plan(
    parameters: Sequence[ParameterInfo],
    order: Sequence[int],
    threshold: int,
    options: PlanOptions,
    rows: Collection[int],
) -> BucketPlan:
    """Buckets that are closed when they have `threshold` bytes, one for each element type."""
    closed: list[list[int]] = []
    filling: dict[str, list[int]] = {}
    filled: dict[str, int] = {}
    for index in order:
        if index in rows:
            closed.append([index])
            continue
        dtype = parameters[index].dtype
        filling.setdefault(dtype, []).append(index)
        filled[dtype] = filled.get(dtype, 0) + parameters[index].nbytes
        if filled[dtype] >= threshold:
            closed.append(filling.pop(dtype))
            filled[dtype] = 0
    closed += filling.values()
    place = {index: at for at, index in enumerate(order)}
    closed.sort(key=lambda bucket: place[bucket[-1]])
    return BucketPlan(
        tuple(parameters),
        tuple(
            PlannedBucket(tuple(bucket), rows=True)
            if bucket[0] in rows
            else PlannedBucket(tuple(bucket), _algorithm(sum(parameters[i].nbytes for i in bucket), options))
            for bucket in closed
        ),
    )


def _algorithm(nbytes: int, options: PlanOptions) -> str | None:
    if options.algorithm == "automatic":
        return None
    return _HYBRID[nbytes > _HYBRID_BYTES] if options.algorithm == "hybrid" else options.algorithm
