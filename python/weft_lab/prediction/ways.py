"""Methods of averaging gradients as items of a step: starts, waits and updates.

Each begins with backward and ends with the beginning of the next one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence

from weft.torch.parallel.costs import CostModel, StepProfile
from weft.torch.parallel.fusion import PlanOptions, make_plan
from weft.torch.parallel.plan import BucketPlan, ParameterInfo
from weft_lab.experiment import trainings
from weft_lab.experiment.study import CONTENDERS
from weft_lab.prediction.cluster import Exchange, Prices
from weft_lab.prediction.compression import COMPRESSIONS
from weft_lab.prediction.profile import TrainingProfile
from weft_lab.prediction.step import Compute, Item, Operation, Start, StepTime, Wait, run

__all__ = ["WAYS", "Way", "ddp_buckets", "overlapped_plan", "time_of"]

_DDP_FIRST_BYTES, _DDP_BYTES = 1 << 20, 25 << 20
"""The sizes at which DDP closes its first bucket and the others."""


@dataclasses.dataclass(frozen=True)
class Bucket:
    """Parameters that are averaged together."""

    parameters: tuple[int, ...]
    exchanges: tuple[Exchange, ...]
    """One after the other."""
    priority: int = 0


@dataclasses.dataclass(frozen=True)
class Way:
    """A method of averaging gradients."""

    about: str
    buckets: Callable[[TrainingProfile, BucketPlan, Prices], list[Bucket]]
    items: Callable[[TrainingProfile, Sequence[Bucket]], Iterator[Item]]


def time_of(way: Way, profile: TrainingProfile, plan: BucketPlan, prices: Prices) -> tuple[StepTime, float]:
    """The time of a step by this method, and of its communication alone, in seconds.

    `plan` is `weft.torch.DataParallel`'s for this profile and network.
    """
    if prices.cluster.ranks == 1:
        return StepTime(profile.compute_s, profile.compute_s, 0.0), 0.0
    buckets = way.buckets(profile, plan, prices)
    prices.prepare(exchange for bucket in buckets for exchange in bucket.exchanges)
    operations = [
        Operation(
            sum(map(prices.seconds, bucket.exchanges)), sum(map(prices.processor_s, bucket.exchanges)), bucket.priority
        )
        for bucket in buckets
    ]
    time = run(way.items(profile, buckets), operations, prices.cluster.cores)
    return time, sum(operation.seconds for operation in operations)


def overlapped_plan(profile: TrainingProfile, prices: Prices) -> BucketPlan:
    """The buckets that `weft.torch.DataParallel` would choose."""
    infos = [ParameterInfo(one.name, one.elements, one.dtype, one.itemsize) for one in profile.parameters]
    windows = StepProfile(
        tuple(one.ready_s for one in profile.parameters),
        tuple(one.use_s for one in profile.parameters),
        profile.backward_s,
        profile.forward_s,
        profile.update_s / profile.nbytes,
    )
    costs = CostModel.measured(lambda nbytes: prices.seconds(Exchange("all-reduce", nbytes)))
    return make_plan(infos, PlanOptions(), costs if prices.cluster.ranks > 1 else None, windows)


def ddp_buckets(profile: TrainingProfile) -> list[tuple[int, ...]]:
    """The buckets of `DistributedDataParallel`, from its second step on.

    Gradients in the order of their computation; those of a type fill a bucket until it has 1 MiB,
    and the following ones until they have 25 MiB.
    """
    closed: list[list[int]] = []
    filling: dict[str, list[int]] = {}
    full: set[str] = set()
    for index in _order(profile, range(len(profile.parameters))):
        dtype = profile.parameters[index].dtype
        members = filling.setdefault(dtype, [])
        members.append(index)
        if _nbytes(profile, members) >= (_DDP_BYTES if dtype in full else _DDP_FIRST_BYTES):
            closed.append(filling.pop(dtype))
            full.add(dtype)
    return [tuple(members) for members in [*closed, *filling.values()]]


# Buckets.


def _by_ddp(algorithms: tuple[str, ...] | None) -> Callable[[TrainingProfile, BucketPlan, Prices], list[Bucket]]:
    def buckets(profile: TrainingProfile, plan: BucketPlan, prices: Prices) -> list[Bucket]:  # noqa: ARG001
        return [_exact(profile, members, algorithms) for members in ddp_buckets(profile)]

    return buckets


def _fused(profile: TrainingProfile, plan: BucketPlan, prices: Prices) -> list[Bucket]:  # noqa: ARG001
    """Neighbours in the model, with about 25 MiB together."""
    used = [index for index, parameter in enumerate(profile.parameters) if not math.isinf(parameter.ready_s)]
    groups = trainings.fused([profile.parameters[index].nbytes for index in used])
    return [_exact(profile, tuple(used[place] for place in places)) for places in groups if places]


def _planned(profile: TrainingProfile, plan: BucketPlan, prices: Prices) -> list[Bucket]:  # noqa: ARG001
    return [
        dataclasses.replace(_exact(profile, bucket.parameters), priority=bucket.priority) for bucket in plan.buckets
    ]


def _compressed(name: str) -> Callable[[TrainingProfile, BucketPlan, Prices], list[Bucket]]:
    def buckets(profile: TrainingProfile, plan: BucketPlan, prices: Prices) -> list[Bucket]:
        found = []
        for bucket in plan.buckets:
            members = [profile.parameters[index] for index in bucket.parameters]
            exchanges = COMPRESSIONS[name].exchanges(members, prices.cluster.ranks)
            found.append(Bucket(bucket.parameters, tuple(exchanges), bucket.priority))
        return found

    return buckets


def _exact(profile: TrainingProfile, members: tuple[int, ...], algorithms: tuple[str, ...] | None = None) -> Bucket:
    return Bucket(members, (Exchange("all-reduce", _nbytes(profile, members), algorithms=algorithms),))


# Items.


def _during_backward(profile: TrainingProfile, buckets: Sequence[Bucket], copies: int) -> Iterator[Item]:
    """Averages overlap with backward, which ends with waiting for all.

    Gradients are copied into buckets, and back out of them if `copies` is 2.
    """
    yield from _backward(profile, buckets)
    for number, bucket in enumerate(buckets):
        yield Wait(number)
        if copies == 2:
            yield Compute(_nbytes(profile, bucket.parameters) * profile.copy_s_per_byte)
    yield Compute(profile.compute_s - profile.backward_s)


def _by_ddp_items(profile: TrainingProfile, buckets: Sequence[Bucket]) -> Iterator[Item]:
    return _during_backward(profile, buckets, copies=2)


def _by_weft_items(profile: TrainingProfile, buckets: Sequence[Bucket]) -> Iterator[Item]:
    return _during_backward(profile, buckets, copies=1)


def _after_backward(profile: TrainingProfile, buckets: Sequence[Bucket]) -> Iterator[Item]:
    """One after the other, each copied together, averaged, divided and copied back."""
    yield Compute(profile.backward_s)
    for number, bucket in enumerate(buckets):
        copy_s = _nbytes(profile, bucket.parameters) * profile.copy_s_per_byte
        yield Compute(copy_s)
        yield Start(number)
        yield Wait(number)
        yield Compute(2 * copy_s)
    yield Compute(profile.compute_s - profile.backward_s)


def _into_forward(profile: TrainingProfile, buckets: Sequence[Bucket]) -> Iterator[Item]:
    """Each bucket is waited for, and updated, when forward first uses one of its parameters."""
    yield from _backward(profile, buckets)
    yield Compute(profile.finish_s + profile.prepare_s)
    update_s = profile.update_s / sum(_nbytes(profile, bucket.parameters) for bucket in buckets)
    used = [min(profile.parameters[index].use_s for index in bucket.parameters) for bucket in buckets]
    passed = 0.0
    for number in sorted(range(len(buckets)), key=lambda number: (used[number], number)):
        place = min(used[number], profile.forward_s)
        yield Compute(place - passed)
        passed = place
        yield Wait(number)
        yield Compute(_nbytes(profile, buckets[number].parameters) * update_s)
    yield Compute(profile.forward_s - passed + profile.loss_s)


def _backward(profile: TrainingProfile, buckets: Sequence[Bucket]) -> Iterator[Item]:
    """Backward, copying gradients into buckets; averages start in the buckets' order.

    A parameter without a gradient is waited for until backward ends.
    """
    missing = [len(bucket.parameters) for bucket in buckets]
    bucket_of = {index: number for number, bucket in enumerate(buckets) for index in bucket.parameters}
    next_start, passed = 0, 0.0
    for index in _order(profile, bucket_of):
        parameter = profile.parameters[index]
        place = min(parameter.ready_s, profile.backward_s)
        yield Compute(place - passed + parameter.nbytes * profile.copy_s_per_byte)
        passed = place
        missing[bucket_of[index]] -= 1
        while next_start < len(buckets) and not missing[next_start]:
            yield Start(next_start)
            next_start += 1
    yield Compute(profile.backward_s - passed)


def _order(profile: TrainingProfile, indices: Sequence[int] | dict[int, int]) -> list[int]:
    """The order of gradients; of those at the same time, the model's last first."""
    return sorted(indices, key=lambda index: (profile.parameters[index].ready_s, -index))


def _nbytes(profile: TrainingProfile, indices: Sequence[int]) -> int:
    return sum(profile.parameters[index].nbytes for index in indices)


WAYS = {
    "after": Way(CONTENDERS["after"], _fused, _after_backward),
    "ddp-gloo": Way(CONTENDERS["ddp-gloo"], _by_ddp(("ring",)), _by_ddp_items),
    "ddp-weft": Way(CONTENDERS["ddp-weft"], _by_ddp(None), _by_ddp_items),
    "backward": Way(CONTENDERS["backward"], _planned, _by_weft_items),
    "automatic": Way(CONTENDERS["automatic"], _planned, _into_forward),
    **{
        name: Way(f"Overlapped, {compression.about}", _compressed(name), _into_forward)
        for name, compression in COMPRESSIONS.items()
    },
}
"""Methods by name; those without compression as in `weft experiment overlap`."""
