"""Verdict on a model's steps: the waits for communication, and the expected gain of a change.

Expectations are the planner's: buckets by `make_plan`, waits by `exposure`, for costs that were
measured in this group. They are scaled to the waits that steps have shown, and never below what
computation takes, nor below what the averages take alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from weft.quantities import show_time
from weft.torch.parallel.costs import CostModel, StepProfile, communication_seconds, exposure
from weft.torch.parallel.plan import BucketPlan

__all__ = ["Expectations", "MeasuredStep", "expected_step_s", "verdict"]

_WORTH_CHANGING = 0.05
"""The share of waits in a step below which nothing is suggested."""
_GAIN_MIN = 0.02
"""The share of a step that a suggestion must save."""
_SLOWDOWN_MAX = 16.0
_SLOWDOWN_SUSPECT = 4.0
"""Averages that are this many times slower than alone have another cause than their bytes."""
_BISECTIONS = 20
_PREDICT = "`weft predict TRAIN.py --hosts N` compares other ways of averaging"


@dataclasses.dataclass(frozen=True)
class MeasuredStep:
    """The median of the last steps. Times are in seconds."""

    step_s: float
    exposed_s: float
    hidden_s: float
    longest_wait: str
    """The bucket that was waited for longest, for people; empty if there was no wait."""


@dataclasses.dataclass(frozen=True)
class Expectations:
    """The planner's inputs for its expectations, as far as they were measured."""

    plan: BucketPlan
    """The plan by which steps were measured."""
    planned: Callable[[CostModel, StepProfile], BucketPlan]
    """The plan that would be made for other costs or another profile."""
    profile: StepProfile
    """Gradients and uses, as measured."""
    costs: CostModel
    costs_16_bit: CostModel | None
    """In the format bf16; None where it cannot be used, or is used already."""
    deferred: bool
    """Whether averages go on into forward."""


def verdict(step: MeasuredStep, known: Expectations | None, *, read_early: bool) -> list[str]:
    """A step in words, and what to try.

    `read_early`: the program reads all gradients before its steps.
    """
    share = min(step.exposed_s / step.step_s, 1.0) if step.step_s > 0 else 0.0
    lines = [
        f"step {show_time(step.step_s)}: waits for communication {show_time(step.exposed_s)} ({share:.0%}), "
        f"hides {show_time(step.hidden_s)}"
    ]
    if step.longest_wait:
        lines.append(f"longest wait: {step.longest_wait}")
    if share < _WORTH_CHANGING:
        return [*lines, "little is left to gain from communication"]
    if read_early:
        lines.append("the program reads all gradients before each step (clipping by norm?), which prevents overlap")
    return [*lines, _suggestion(step, known)]


def _suggestion(step: MeasuredStep, known: Expectations | None) -> str:
    if known is None:
        return f"no windows were measured for this plan: {_PREDICT}"
    slowdown = _slowdown(step, known)
    if slowdown >= _SLOWDOWN_SUSPECT:
        about = "at least" if slowdown >= _SLOWDOWN_MAX else "about"
        return (
            f"averages take {about} {slowdown:.0f} times as long as alone: ranks are late, or others use network and "
            "cores; `weft top`, while the job runs, says which rank is waited for"
        )
    found = [(expected_step_s(step, known, costs, profile), change) for change, costs, profile in _changes(known)]
    expected_s, change = min(found, default=(step.step_s, ""))
    if step.step_s - expected_s < _GAIN_MIN * step.step_s:
        return f"the planner knows no change that helps here: {_PREDICT}"
    return f"try {change}: the planner expects {show_time(expected_s)}"


def _changes(known: Expectations) -> list[tuple[str, CostModel, StepProfile]]:
    """Changes to try, with the costs and the profile that they have."""
    changes = []
    now = known.profile if known.deferred else known.profile.not_deferred()
    if not known.deferred:
        changes.append(("weft.torch.Overlapped(optimizer, model)", known.costs, known.profile))
    if known.costs_16_bit is not None:
        changes.append(("16 bits, mode=weft.torch.modes.Wire('bf16')", known.costs_16_bit, now))
    return changes


def expected_step_s(step: MeasuredStep, known: Expectations, costs: CostModel, profile: StepProfile) -> float:
    """How long a step would take with other costs or another profile."""
    speed = 1 / _slowdown(step, known)
    before_s = _exposed_now(known, speed)
    if before_s <= 0:
        return step.step_s
    slowed = costs.at_speed(speed)
    plan = known.planned(costs, profile)
    after_s = exposure(plan, profile, slowed).total_s
    waits_s = step.exposed_s * min(after_s / before_s, 1.0)
    return max(step.step_s - step.exposed_s + waits_s, communication_seconds(plan, profile, costs))


def _slowdown(step: MeasuredStep, known: Expectations) -> float:
    """How many times slower than alone averages are, by the waits that steps have shown.

    At least 1: nothing is faster than it was alone.
    """
    low, high = 1.0, _SLOWDOWN_MAX
    if _exposed_now(known, 1 / low) >= step.exposed_s:
        return low
    for _ in range(_BISECTIONS):
        middle = (low * high) ** 0.5
        if _exposed_now(known, 1 / middle) < step.exposed_s:
            low = middle
        else:
            high = middle
    return high


def _exposed_now(known: Expectations, speed: float) -> float:
    profile = known.profile if known.deferred else known.profile.not_deferred()
    return exposure(known.plan, profile, known.costs.at_speed(speed)).total_s
