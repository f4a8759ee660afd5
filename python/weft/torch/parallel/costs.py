"""Price of a bucket plan: how long a step waits for communication, by a profile and a cost model.

A parameter's gradient is there at some time of backward (B_n), and the parameter is used at some
time of the next forward (F_n): communication that ends in between, in the window, costs nothing.
Times are in seconds.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Callable, Mapping, Sequence

from weft.torch.parallel.plan import BucketPlan, PlannedBucket

__all__ = ["CostModel", "Exposure", "StepProfile", "communication_seconds", "exposure", "order_of_use", "price"]

_SMALL_BYTES, _LARGE_BYTES = 4 << 10, 2 << 20
_SPEEDS = (0.5, 1.0, 2.0)
_DELAY_SHARE = 0.1


@dataclasses.dataclass(frozen=True)
class CostModel:
    """An all-reduce of n bytes takes `latency_s + n * seconds_per_byte`, which was measured."""

    latency_s: float
    seconds_per_byte: float

    @classmethod
    def measured(cls, seconds: Callable[[int], float]) -> CostModel:
        """The model of a network, by what it takes for a small message and a large one."""
        small, large = seconds(_SMALL_BYTES), seconds(_LARGE_BYTES)
        per_byte = max(large - small, 0.0) / (_LARGE_BYTES - _SMALL_BYTES)
        return cls(max(small - per_byte * _SMALL_BYTES, 0.0), per_byte)

    def seconds(self, nbytes: float) -> float:
        """What an all-reduce of so many bytes takes alone."""
        return self.latency_s + nbytes * self.seconds_per_byte

    def at_speed(self, speed: float) -> CostModel:
        """The same on a network that is so many times as fast."""
        return CostModel(self.latency_s / speed, self.seconds_per_byte / speed)


@dataclasses.dataclass(frozen=True)
class StepProfile:
    """When a step makes gradients and uses parameters, without waits and without updates."""

    ready_s: tuple[float, ...]
    """For each parameter, when its gradient is there, from the start of backward; infinity where it
    had none.
    """
    use_s: tuple[float, ...]
    """For each parameter, when it is first used, from the start of forward; infinity where it was
    not.
    """
    backward_s: float
    forward_s: float
    update_s_per_byte: float = 0.0
    """What the optimizer takes for a byte of gradients."""
    row_bytes: Mapping[int, float] = dataclasses.field(default_factory=dict)
    """For parameters that are exchanged by rows, of how many bytes an all-reduce moves as much."""

    def not_deferred(self) -> StepProfile:
        """The same where all averages are waited for at the end of backward."""
        return dataclasses.replace(self, use_s=(0.0,) * len(self.use_s), update_s_per_byte=0.0)


@dataclasses.dataclass(frozen=True)
class Exposure:
    """What a step waits for. Times from the start of backward."""

    issued_s: tuple[float, ...]
    ended_s: tuple[float, ...]
    waited_s: tuple[float, ...]
    """For each bucket, how long forward waits for it."""
    delayed_s: float
    """By how much forward is behind at the uses of parameters, as their mean."""

    @property
    def total_s(self) -> float:
        """How much longer the step takes than its computation."""
        return sum(self.waited_s)


def exposure(plan: BucketPlan, profile: StepProfile, costs: CostModel) -> Exposure:
    """Prices a plan: buckets share one network, where an urgent one goes past the others.

    An average starts when its gradients are there and all earlier ones of the plan have started.
    The next forward begins after backward. At the first use of a bucket it stops until the average
    has ended, and then carries out the update; the network goes on meanwhile.
    """
    issued: list[float] = []
    for bucket in plan.buckets:
        ready = max(min(profile.ready_s[index], profile.backward_s) for index in bucket.parameters)
        issued.append(max(ready, issued[-1] if issued else 0.0))
    seconds = _seconds(plan, profile, costs)
    ended = _ended(issued, seconds, [bucket.priority for bucket in plan.buckets])
    waited = [0.0] * len(plan.buckets)
    delay = delays = 0.0
    for number in order_of_use(plan.buckets, profile.use_s):
        bucket = plan.buckets[number]
        used = min(profile.use_s[index] for index in bucket.parameters)
        if math.isinf(used):
            break
        waited[number] = max(ended[number] - (profile.backward_s + used + delay), 0.0)
        delay += waited[number] + plan.nbytes(bucket) * profile.update_s_per_byte
        delays += delay * len(bucket.parameters)
    return Exposure(tuple(issued), tuple(ended), tuple(waited), delays / max(len(plan.parameters), 1))


def communication_seconds(plan: BucketPlan, profile: StepProfile, costs: CostModel) -> float:
    """The time of all averages of a step, one after the other: no step is shorter."""
    return sum(_seconds(plan, profile, costs))


def order_of_use(buckets: Sequence[PlannedBucket], use_s: Sequence[float]) -> list[int]:
    """The numbers of the buckets as forward needs them, those first that it needs first."""
    first = [min((use_s[index], index) for index in bucket.parameters) for bucket in buckets]
    return sorted(range(len(buckets)), key=lambda number: first[number])


def price(plan: BucketPlan, profile: StepProfile, costs: CostModel) -> float:
    """How good a plan is: how long a step waits, in seconds to the microsecond, and a little more.

    It is the mean over some speeds, since a network that many use, beside threads that compute, is
    not always as fast as it was when it was measured. Waits at the end of forward are better than
    as many at its beginning: what has been computed by then cannot be late any more.
    """
    total = 0.0
    for speed in _SPEEDS:
        found = exposure(plan, profile, costs.at_speed(speed))
        total += found.total_s + _DELAY_SHARE * found.delayed_s
    return round(total / len(_SPEEDS), 6)


def _seconds(plan: BucketPlan, profile: StepProfile, costs: CostModel) -> list[float]:
    """By bucket."""
    return [costs.seconds(_averaged_bytes(plan, bucket, profile)) for bucket in plan.buckets]


def _averaged_bytes(plan: BucketPlan, bucket: PlannedBucket, profile: StepProfile) -> float:
    nbytes = plan.nbytes(bucket)
    return profile.row_bytes.get(bucket.parameters[0], nbytes) if bucket.rows else nbytes


def _ended(issued: Sequence[float], seconds: Sequence[float], priorities: Sequence[int]) -> list[float]:
    """When each operation ends on one network that serves the most urgent one, the oldest first."""
    remaining = list(seconds)
    ended = [0.0] * len(issued)
    active: list[tuple[int, int]] = []
    clock, arrived = 0.0, 0
    while arrived < len(issued) or active:
        if not active:
            clock = max(clock, issued[arrived])
        while arrived < len(issued) and issued[arrived] <= clock:
            heapq.heappush(active, (-priorities[arrived], arrived))
            arrived += 1
        _, served = active[0]
        until = issued[arrived] if arrived < len(issued) else math.inf
        if clock + remaining[served] <= until:
            clock += remaining[served]
            ended[served] = clock
            heapq.heappop(active)
        else:
            remaining[served] -= until - clock
            clock = until
    return ended
