"""Price of a bucket plan: how long a step waits for communication, by a profile and a cost model.

A parameter's gradient is there at some time of backward (B_n), and the parameter is used at some
time of the next forward (F_n): communication that ends in between, in the window, costs nothing.
Times are in seconds.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from weft.torch.parallel.plan import BucketPlan

__all__ = ["CostModel", "Exposure", "StepProfile", "exposure"]


@dataclasses.dataclass(frozen=True)
class CostModel:
    """An all-reduce of n bytes takes `latency_s + n * seconds_per_byte`, which was measured."""

    latency_s: float
    seconds_per_byte: float

    def seconds(self, nbytes: int) -> float:
        """What an all-reduce of so many bytes takes alone."""
        return self.latency_s + nbytes * self.seconds_per_byte


@dataclasses.dataclass(frozen=True)
class StepProfile:
    """When a step's computation makes gradients and uses parameters, without waits."""

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


@dataclasses.dataclass(frozen=True)
class Exposure:
    """What a step waits for. Times from the start of backward."""

    issued_s: tuple[float, ...]
    ended_s: tuple[float, ...]
    waited_s: tuple[float, ...]
    """For each bucket, how long forward waits for it."""

    @property
    def total_s(self) -> float:
        """How much longer the step takes than its computation."""
        return sum(self.waited_s)


def exposure(plan: BucketPlan, profile: StepProfile, costs: CostModel) -> Exposure:
    """Prices a plan: buckets share one network, where an urgent one goes past the others.

    An average starts when its gradients are there and all earlier ones of the plan have started.
    The next forward begins after backward, and stops at a parameter until its bucket has ended.
    """
    issued: list[float] = []
    for bucket in plan.buckets:
        ready = max(min(profile.ready_s[index], profile.backward_s) for index in bucket.parameters)
        issued.append(max(ready, issued[-1] if issued else 0.0))
    seconds = [costs.seconds(plan.nbytes(bucket)) for bucket in plan.buckets]
    ended = _ended(issued, seconds, [bucket.priority for bucket in plan.buckets])
    waited = [0.0] * len(plan.buckets)
    bucket_of = plan.bucket_of_parameter()
    delay = 0.0
    for index in sorted(range(len(plan.parameters)), key=lambda index: (profile.use_s[index], index)):
        if math.isinf(profile.use_s[index]):
            break
        late = ended[bucket_of[index]] - (profile.backward_s + profile.use_s[index] + delay)
        if late > 0:
            waited[bucket_of[index]] += late
            delay += late
    return Exposure(tuple(issued), tuple(ended), tuple(waited))


def _ended(issued: Sequence[float], seconds: Sequence[float], priorities: Sequence[int]) -> list[float]:
    """When each operation ends on one network that serves the most urgent one, the oldest first."""
    remaining = list(seconds)
    ended = [0.0] * len(issued)
    active: list[int] = []
    clock, arrived = 0.0, 0
    while arrived < len(issued) or active:
        if not active:
            clock = max(clock, issued[arrived])
        while arrived < len(issued) and issued[arrived] <= clock:
            active.append(arrived)
            arrived += 1
        served = min(active, key=lambda number: (-priorities[number], number))
        until = issued[arrived] if arrived < len(issued) else math.inf
        if clock + remaining[served] <= until:
            clock += remaining[served]
            ended[served] = clock
            active.remove(served)
        else:
            remaining[served] -= until - clock
            clock = until
    return ended
