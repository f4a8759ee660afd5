"""Tests of a report's verdict and text: expectations within physical bounds, and lines that fit."""

from __future__ import annotations

import dataclasses
import random

import pytest

from weft.torch.parallel.costs import CostModel, StepProfile, communication_seconds, exposure
from weft.torch.parallel.fusion import PlanOptions, make_plan
from weft.torch.parallel.plan import BucketPlan, ParameterInfo
from weft.torch.parallel.report import Report
from weft.torch.parallel.report_rows import BucketReport, LayerReport
from weft.torch.parallel.verdict import Expectations, MeasuredStep, expected_step_s, verdict

MIB = 1 << 20
PARAMETERS = [ParameterInfo(f"{index}.weight", nbytes // 4, "float32", 4) for index, nbytes in enumerate([8 * MIB] * 4)]
PROFILE = StepProfile((0.04, 0.03, 0.02, 0.01), (0.0, 0.01, 0.02, 0.03), 0.04, 0.04)
SLOW = CostModel(1e-4, 2e-9)
HALF = CostModel(1e-4, 1e-9)


def planned(costs: CostModel, profile: StepProfile) -> BucketPlan:
    return make_plan(PARAMETERS, PlanOptions(), costs, profile)


def expectations(
    profile: StepProfile = PROFILE, costs: CostModel = SLOW, half: CostModel | None = HALF, *, deferred: bool = True
) -> Expectations:
    now = profile if deferred else profile.not_deferred()
    return Expectations(planned(costs, now), planned, profile, costs, half, deferred)


def measured(known: Expectations, slowdown: float = 1.0) -> MeasuredStep:
    """A step that takes what the model says, on a network that is slower."""
    profile = known.profile if known.deferred else known.profile.not_deferred()
    waits_s = exposure(known.plan, profile, known.costs.at_speed(1 / slowdown)).total_s
    return MeasuredStep(profile.backward_s + profile.forward_s + waits_s, waits_s, 0.01, "bucket 1 (0.weight), 10 ms")


def test_verdict_names_waits_and_the_best_change() -> None:
    known = expectations()
    step = measured(known)
    first, longest, change = verdict(step, known, read_early=False)
    assert first.startswith("step ") and f"({step.exposed_s / step.step_s:.0%})" in first and "hides 10.0 ms" in first
    assert longest == "longest wait: bucket 1 (0.weight), 10 ms"
    assert change.startswith("try 16 bits, mode=weft.torch.modes.Wire('bf16'): the planner expects ")


def test_overlap_is_suggested_where_it_is_not_used() -> None:
    known = expectations(half=None, deferred=False)
    assert "try weft.torch.Overlapped(optimizer, model): " in verdict(measured(known), known, read_early=False)[-1]


@pytest.mark.parametrize(
    ("step", "known", "expected"),
    [
        (MeasuredStep(0.1, 0.001, 0.02, ""), None, "little is left to gain"),
        (MeasuredStep(0.1, 0.05, 0.02, ""), None, "no windows were measured for this plan: `weft predict"),
        (measured(expectations(half=None)), expectations(half=None), "no change that helps here: `weft predict"),
        (measured(expectations(), 9.0), expectations(), "about 9 times as long as alone: ranks are late, or others"),
        (measured(expectations(), 99.0), expectations(), "at least 16 times as long as alone: ranks are late"),
    ],
)
def test_unknown_gains_point_elsewhere(step: MeasuredStep, known: Expectations | None, expected: str) -> None:
    assert expected in verdict(step, known, read_early=False)[-1]


def test_reading_gradients_early_is_named() -> None:
    assert any("clipping by norm?" in line for line in verdict(MeasuredStep(0.1, 0.05, 0.0, ""), None, read_early=True))


def test_no_expectation_is_below_its_bounds() -> None:
    numbers = random.Random(1)
    for _ in range(200):
        gap = [numbers.uniform(0.0, 0.02) for _ in range(8)]
        ready = [sum(gap[: 4 - index]) for index in range(4)]
        use = [sum(gap[4 : 4 + index]) for index in range(4)]
        profile = StepProfile(tuple(ready), tuple(use), ready[0] + 0.001, use[-1] + 0.001)
        costs = CostModel(numbers.uniform(0, 1e-3), numbers.uniform(1e-10, 5e-9))
        half = CostModel(costs.latency_s, costs.seconds_per_byte * numbers.uniform(0.5, 1.1))
        known = expectations(profile, costs, half, deferred=numbers.random() < 0.5)
        step = measured(known, numbers.uniform(0.3, 20.0))
        found = expected_step_s(step, known, half, profile)
        assert found >= step.step_s - step.exposed_s - 1e-9
        assert found >= communication_seconds(planned(half, profile), profile, half) or found == step.step_s
        assert found <= max(step.step_s, communication_seconds(planned(half, profile), profile, half)) + 1e-9


def report(buckets: int, *, full: bool = False) -> Report:
    name = "model.decoder.layers.31.self_attention.projection.weight"
    rows = tuple(
        BucketReport(
            number, (name, "bias"), 123_456_789, 123_456_797, "multi-rail(slice-reduce, ring)", 3, 0.1234567, 0.1, 1e-3
        )
        for number in range(buckets)
    )
    layers = tuple(
        LayerReport(name, 123_456_789, tuple(range(buckets)), 0.1, (0,), ("ring", "two-shot"), 0.1, 0.1)
        for _ in range(buckets)
    )
    words = ("try " + "something " * 20,)
    return Report(words, "0" * 16, "exact", 5, 0.1, 0.03, 0.06, 0.0, 10**9, rows, layers, full)


@pytest.mark.parametrize("buckets", [1, 40])
def test_text_fits_100_columns(buckets: int) -> None:
    lines = str(report(buckets)).splitlines()
    assert all(len(line) <= 100 for line in lines), max(lines, key=len)
    assert len([line for line in lines if "2: ..." in line]) == min(buckets, 12)
    assert ("the 12 of 40 buckets with the longest waits" in " ".join(lines)) == (buckets > 12)


def test_full_text_has_all_names_and_rows() -> None:
    text = str(report(40, full=True))
    assert text.count("model.decoder.layers.31.self_attention.projection.weight, bias") == 40
    assert "multi-rail(slice-reduce, ring)" in text and "report(full=True)" not in text


def test_sent_bytes_are_explained_for_exact_averages() -> None:
    assert "sent: the gradients' bytes and a flag for each parameter" in str(report(1))
    assert "sent: the gradients'" not in str(dataclasses.replace(report(1), mode="PowerSGD(rank=4)"))
