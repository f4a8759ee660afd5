"""Predictions of a step by all methods of averaging, for one cluster and for smaller ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from weft_lab.prediction.cluster import Cluster, Prices
from weft_lab.prediction.profile import TrainingProfile
from weft_lab.prediction.ways import WAYS, overlapped_plan, time_of

__all__ = ["Prediction", "PredictedStep", "predict", "predict_scaling", "smaller"]


@dataclasses.dataclass(frozen=True)
class PredictedStep:
    """A step by one method. Times are in seconds."""

    way: str
    step_s: float
    exposed_s: float
    """How long it only waits for communication."""
    slowed_s: float
    """How much longer its computation takes, because of communication and copies."""
    communication_s: float
    """All of its communication alone."""
    efficiency: float
    """Its computation divided by its time: the scaling efficiency."""


@dataclasses.dataclass(frozen=True)
class Prediction:
    """A cluster, and a step there by every method."""

    cluster: Cluster
    compute_s: float
    buckets: int
    """The buckets of the plan of `weft.torch.DataParallel`."""
    steps: tuple[PredictedStep, ...]

    def step(self, way: str) -> PredictedStep:
        """The step of one method."""
        return next(step for step in self.steps if step.way == way)

    def to_value(self) -> dict[str, Any]:
        """The JSON form."""
        return dataclasses.asdict(self)


def predict(profile: TrainingProfile, cluster: Cluster, ways: Sequence[str] = tuple(WAYS)) -> Prediction:
    """Prices a step on a cluster.

    Raises:
        weft.ArgumentError: No algorithm can run there.
    """
    prices = Prices(cluster)
    plan = overlapped_plan(profile, prices)
    steps = []
    for way in ways:
        time, communication_s = time_of(WAYS[way], profile, plan, prices)
        steps.append(
            PredictedStep(
                way,
                time.total_s,
                time.waited_s,
                max(time.total_s - time.waited_s - profile.compute_s, 0.0),
                communication_s,
                profile.compute_s / time.total_s,
            )
        )
    return Prediction(cluster, profile.compute_s, len(plan.buckets), tuple(steps))


def predict_scaling(
    profile: TrainingProfile,
    cluster: Cluster,
    ways: Sequence[str] = tuple(WAYS),
    priced: Callable[[int], object] = lambda _: None,
) -> list[Prediction]:
    """Predictions for one host, two, four and so on up to the cluster's, which come last.

    `priced` is called with each of these numbers when that one is complete.
    """
    found = []
    for hosts in smaller(cluster.hosts):
        found.append(predict(profile, dataclasses.replace(cluster, hosts=hosts), ways))
        priced(hosts)
    return found


def smaller(hosts: int) -> list[int]:
    """1, 2, 4 and so on, and `hosts` itself."""
    return [*(1 << power for power in range((hosts - 1).bit_length())), hosts]
