"""Price of a bucket plan: how long a step waits for communication, by a profile and a cost model.

A parameter's gradient is computed at some time of backward (B_n), and the parameter is used at some
time of the next forward (F_n): communication that ends in between, in the window, costs nothing.
Times are in seconds.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Callable, Mapping, Sequence

from weft.torch.parallel.plan import BucketPlan, PlannedBucket

__all__ = [
    "CostModel",
    "DivisionRule",
    "Exposure",
    "Network",
    "StepProfile",
    "communication_seconds",
    "exposure",
    "order_of_use",
    "price",
    "update_seconds",
]

_SMALL_BYTES, _LARGE_BYTES = 4 << 10, 2 << 20
_SPEEDS = (0.5, 1.0, 2.0)
_DELAY_SHARE = 0.1


@dataclasses.dataclass(frozen=True)
class CostModel:
    """An all-reduce of n bytes takes `latency_s + n * seconds_per_byte`; both are measured."""

    latency_s: float
    seconds_per_byte: float
    exact_s_per_byte: float | None = None
    """Where averages are rounded, of parameters, which are not."""

    @classmethod
    def measured(cls, seconds: Callable[[int], float]) -> CostModel:
        """The model of a network, from the times of a small message and a large one."""
        small, large = seconds(_SMALL_BYTES), seconds(_LARGE_BYTES)
        per_byte = max(large - small, 0.0) / (_LARGE_BYTES - _SMALL_BYTES)
        return cls(max(small - per_byte * _SMALL_BYTES, 0.0), per_byte)

    def seconds(self, nbytes: float) -> float:
        """The time of an all-reduce of this many bytes alone."""
        return self.latency_s + nbytes * self.seconds_per_byte

    @property
    def of_parameters(self) -> CostModel:
        """The same for parameters."""
        per_byte = self.seconds_per_byte if self.exact_s_per_byte is None else self.exact_s_per_byte
        return CostModel(self.latency_s, per_byte)

    def at_speed(self, speed: float) -> CostModel:
        """The same on a network that is faster by this factor."""
        return CostModel(self.latency_s / speed, *self._per_byte(1 / speed))

    def sending(self, share: float) -> CostModel:
        """The same where ranks send this share of the bytes."""
        return CostModel(self.latency_s, *self._per_byte(share))

    def _per_byte(self, factor: float) -> tuple[float, float | None]:
        exact = None if self.exact_s_per_byte is None else self.exact_s_per_byte * factor
        return self.seconds_per_byte * factor, exact


@dataclasses.dataclass(frozen=True)
class Network:
    """The costs of all-reduces in a group, as measured."""

    hosts: list[str]
    ranks: int
    exact: CostModel
    narrow: CostModel | None
    """With float32 as bf16 between hosts, for the bytes at full precision."""

    @property
    def rounded(self) -> CostModel:
        """The costs where averages are sent in 16 bits, and parameters are not."""
        if self.narrow is None:
            return self.exact
        return dataclasses.replace(self.narrow, exact_s_per_byte=self.exact.seconds_per_byte)

    def among(self, hosts: Sequence[str], ranks: int) -> Network | None:
        """The costs in another group; None if none of its hosts was measured, or another network.

        Hosts that have joined are taken to be like the others.
        """
        crosses_network = [len(set(one)) > 1 for one in (hosts, self.hosts)]
        if set(hosts).isdisjoint(self.hosts) or crosses_network[0] != crosses_network[1]:
            return None
        share = (1 - 1 / ranks) / (1 - 1 / self.ranks)  # of what a rank sends for an all-reduce
        narrow = None if self.narrow is None else self.narrow.sending(share)
        return Network(sorted(set(hosts)), ranks, self.exact.sending(share), narrow)


@dataclasses.dataclass(frozen=True)
class DivisionRule:
    """How ranks divide updates."""

    ranks: int
    bytes_min: int
    """The least bytes of a bucket of which each rank updates its share."""
    chosen: bool
    """Whether the planner may leave buckets undivided."""


@dataclasses.dataclass(frozen=True)
class StepProfile:
    """The times at which a step computes gradients and uses parameters, without waits."""

    ready_s: tuple[float, ...]
    """For each parameter, the time of its gradient from the start of backward; infinity if it had
    none.
    """
    use_s: tuple[float, ...]
    """For each parameter, the time of its first use from the start of forward; infinity if it was
    not used.
    """
    backward_s: float
    forward_s: float
    update_s_per_byte: float = 0.0
    """The optimizer's time for a byte of gradients."""
    row_bytes: Mapping[int, float] = dataclasses.field(default_factory=dict)
    """For parameters that are exchanged by rows, the bytes of an all-reduce with the same traffic.
    """
    division: DivisionRule | None = None
    """None: every rank carries out all updates."""

    def divides(self, plan: BucketPlan, bucket: PlannedBucket) -> bool:
        """Whether each rank updates its share of this bucket."""
        if self.division is None or bucket.rows or bucket.undivided:
            return False
        return plan.nbytes(bucket) >= self.division.bytes_min

    def not_deferred(self) -> StepProfile:
        """The same if all averages are waited for at the end of backward."""
        return dataclasses.replace(self, use_s=(0.0,) * len(self.use_s), update_s_per_byte=0.0, division=None)


@dataclasses.dataclass(frozen=True)
class Exposure:
    """The waits of a step. Times are from the start of backward."""

    issued_s: tuple[float, ...]
    ended_s: tuple[float, ...]
    waited_s: tuple[float, ...]
    """For each bucket, the time that forward waits for it."""
    delayed_s: float
    """The mean delay of forward at the uses of parameters."""

    @property
    def total_s(self) -> float:
        """How much longer the step takes than its computation."""
        return sum(self.waited_s)


def exposure(plan: BucketPlan, profile: StepProfile, costs: CostModel) -> Exposure:
    """Prices a plan: buckets share one network, where an urgent one overtakes the others.

    An average starts when its gradients are computed and all earlier averages of the plan have
    started. The next forward begins after backward. At the first use of a bucket it stops until the
    average has ended, and then carries out the update; the network continues meanwhile.

    A divided bucket is reduce-scattered. After backward, a thread updates the shares, urgent ones
    first, and the parameters are all-gathered until the first use. Each of both takes half the time
    of the bytes.
    """
    issued: list[float] = []
    for bucket in plan.buckets:
        ready = max(min(profile.ready_s[index], profile.backward_s) for index in bucket.parameters)
        issued.append(max(ready, issued[-1] if issued else 0.0))
    seconds = [
        costs.seconds(_averaged_bytes(plan, bucket, profile) * (0.5 if profile.divides(plan, bucket) else 1.0))
        for bucket in plan.buckets
    ]
    priorities = [bucket.priority for bucket in plan.buckets]
    ended = _ended(issued, seconds, priorities)
    if profile.division is not None:
        gathers = [costs.of_parameters.seconds(plan.nbytes(bucket) * 0.5) for bucket in plan.buckets]
        ended = _gathered(plan, profile, (issued, seconds, priorities), ended, gathers)
    waited = [0.0] * len(plan.buckets)
    delay = delays = 0.0
    for number in order_of_use(plan.buckets, profile.use_s):
        bucket = plan.buckets[number]
        used = min(profile.use_s[index] for index in bucket.parameters)
        if math.isinf(used):
            break
        waited[number] = max(ended[number] - (profile.backward_s + used + delay), 0.0)
        delay += waited[number]
        if not profile.divides(plan, bucket):
            delay += plan.nbytes(bucket) * profile.update_s_per_byte
        delays += delay * len(bucket.parameters)
    return Exposure(tuple(issued), tuple(ended), tuple(waited), delays / max(len(plan.parameters), 1))


def communication_seconds(plan: BucketPlan, profile: StepProfile, costs: CostModel) -> float:
    """The time of all averages of a step, one after the other: no step is shorter."""
    return sum(_seconds(plan, profile, costs, bucket) for bucket in plan.buckets)


def update_seconds(plan: BucketPlan, profile: StepProfile) -> float:
    """The program's time in the optimizer, without divided updates, which a thread carries out."""
    nbytes = sum(plan.nbytes(bucket) for bucket in plan.buckets if not profile.divides(plan, bucket))
    return nbytes * profile.update_s_per_byte


def order_of_use(buckets: Sequence[PlannedBucket], use_s: Sequence[float]) -> list[int]:
    """The numbers of the buckets in the order in which forward needs them."""
    first = [min((use_s[index], index) for index in bucket.parameters) for bucket in buckets]
    return sorted(range(len(buckets)), key=lambda number: first[number])


def price(plan: BucketPlan, profile: StepProfile, costs: CostModel) -> float:
    """The price of a plan: the time that a step waits, to the microsecond, and a small term.

    It is the mean over some speeds, since a network that is shared by many, beside threads that
    compute, is not always as fast as it was when it was measured. Waits at the end of forward are
    better than equal ones at its beginning: what has been computed by then cannot be late any more.
    """
    total = 0.0
    for speed in _SPEEDS:
        found = exposure(plan, profile, costs.at_speed(speed))
        total += found.total_s + _DELAY_SHARE * found.delayed_s
    return round(total / len(_SPEEDS), 6)


def _gathered(
    plan: BucketPlan,
    profile: StepProfile,
    averages: tuple[Sequence[float], Sequence[float], Sequence[int]],
    ended: Sequence[float],
    gathers: Sequence[float],
) -> list[float]:
    """The end of each bucket, for divided ones that of the all-gather of its parameters.

    `averages`: times of start, durations and priorities of the averages, which end at `ended`;
    `gathers`: durations of all-gathers.
    """
    assert profile.division is not None
    operations = [(start, number, False) for number, start in enumerate(averages[0])]
    clock = profile.backward_s
    for number in sorted(range(len(ended)), key=lambda number: -averages[2][number]):
        bucket = plan.buckets[number]
        if profile.divides(plan, bucket):
            share = plan.nbytes(bucket) / profile.division.ranks
            clock = max(clock, ended[number]) + share * profile.update_s_per_byte
            operations.append((clock, number, True))
    operations.sort()
    ends = _ended(
        [start for start, _, _ in operations],
        [(gathers if is_gather else averages[1])[number] for _, number, is_gather in operations],
        [averages[2][number] for _, number, _ in operations],
    )
    found = list(ended)
    for end, (_, number, is_gather) in zip(ends, operations, strict=True):
        if is_gather or not profile.divides(plan, plan.buckets[number]):
            found[number] = end
    return found


def _seconds(plan: BucketPlan, profile: StepProfile, costs: CostModel, bucket: PlannedBucket) -> float:
    """Of an average, or the reduce-scatter and the all-gather in its place."""
    nbytes = _averaged_bytes(plan, bucket, profile)
    if not profile.divides(plan, bucket):
        return costs.seconds(nbytes)
    return (costs.seconds(nbytes) + costs.of_parameters.seconds(nbytes)) / 2


def _averaged_bytes(plan: BucketPlan, bucket: PlannedBucket, profile: StepProfile) -> float:
    nbytes = plan.nbytes(bucket)
    return profile.row_bytes.get(bucket.parameters[0], nbytes) if bucket.rows else nbytes


def _ended(issued: Sequence[float], seconds: Sequence[float], priorities: Sequence[int]) -> list[float]:
    """The end of each operation on one network that serves the most urgent, the oldest first."""
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
