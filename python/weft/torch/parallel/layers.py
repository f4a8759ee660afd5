"""Layers of a model: the windows that computation leaves for their communication."""

from __future__ import annotations

import dataclasses
import math

from weft.torch.parallel.costs import StepProfile, order_of_use
from weft.torch.parallel.plan import BucketPlan

__all__ = ["LayerWindow", "layer_windows"]


@dataclasses.dataclass(frozen=True)
class LayerWindow:
    """A module with parameters of its own. Times are in seconds, as rank 0 has measured them."""

    layer: str
    nbytes: int
    """Bytes of its gradients."""
    buckets: tuple[int, ...]
    """The buckets of its gradients."""
    window_s: float | None
    """The computation from its last gradient to its next use; None if it is not used."""
    first_of: tuple[int, ...]
    """Buckets that forward needs for it first: it waits for these."""


def layer_windows(plan: BucketPlan, profile: StepProfile) -> tuple[LayerWindow, ...]:
    """The layers in the order of their use, by the measurements before the plan was made."""
    members: dict[str, list[int]] = {}
    for index, parameter in enumerate(plan.parameters):
        members.setdefault(parameter.name.rpartition(".")[0] or parameter.name, []).append(index)
    bucket_of = plan.bucket_of_parameter()
    use_s = {layer: min(profile.use_s[index] for index in indices) for layer, indices in members.items()}
    waiting: dict[str, list[int]] = {layer: [] for layer in members}
    layer_of = {index: layer for layer, indices in members.items() for index in indices}
    for number in order_of_use(plan.buckets, profile.use_s):
        first = min(plan.buckets[number].parameters, key=lambda index: (profile.use_s[index], index))
        waiting[layer_of[first]].append(number)
    return tuple(
        LayerWindow(
            layer,
            sum(plan.parameters[index].nbytes for index in members[layer]),
            tuple(sorted({bucket_of[index] for index in members[layer]})),
            _window_s(profile, members[layer], use_s[layer]),
            tuple(waiting[layer]),
        )
        for layer in sorted(members, key=lambda layer: use_s[layer])
    )


def _window_s(profile: StepProfile, indices: list[int], use_s: float) -> float | None:
    if math.isinf(use_s):
        return None
    ready = [profile.ready_s[index] for index in indices if not math.isinf(profile.ready_s[index])]
    return max(profile.backward_s - max(ready, default=profile.backward_s), 0.0) + use_s
