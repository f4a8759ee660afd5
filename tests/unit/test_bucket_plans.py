"""Tests of bucket plans: policies, prices, text."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest

pytest.importorskip("torch")

import weft
from weft.torch.parallel.costs import (
    CostModel,
    DivisionRule,
    Network,
    StepProfile,
    communication_seconds,
    exposure,
    price,
    update_seconds,
)
from weft.torch.parallel.fusion import PlanOptions, make_plan
from weft.torch.parallel.layers import layer_windows
from weft.torch.parallel.plan import BucketPlan, ParameterInfo, PlannedBucket
from weft.torch.parallel.urgency import as_needed

NETWORK = CostModel(latency_s=1.0, seconds_per_byte=0.001)


def infos(*elements: int, dtype: str = "float32") -> list[ParameterInfo]:
    return [ParameterInfo(f"p{number}", count, dtype, 4) for number, count in enumerate(elements)]


def members(plan: BucketPlan) -> list[tuple[int, ...]]:
    return [bucket.parameters for bucket in plan.buckets]


def even_profile(parameters: int, seconds: float = 10.0) -> StepProfile:
    """Every layer takes the same time, forward and backward."""
    return StepProfile(
        tuple((parameters - index) * seconds for index in range(parameters)),
        tuple(index * seconds for index in range(parameters)),
        parameters * seconds,
        parameters * seconds,
    )


@pytest.mark.parametrize(
    ("fusion", "expected"),
    [
        ("none", [(3,), (2,), (1,), (0,)]),
        (100, [(3, 2), (1,), (0,)]),
        (1000, [(3, 2, 1), (0,)]),
        (10**9, [(3, 2, 1, 0)]),
        ("lazy", [(3, 2, 1, 0)]),
    ],
)
def test_fusion(fusion: str | int, expected: list[tuple[int, ...]]) -> None:
    plan = make_plan(infos(30, 1000, 20, 5), PlanOptions(fusion))
    assert members(plan) == expected


def test_completion_order_of_a_profile() -> None:
    profile = dataclasses.replace(even_profile(3), ready_s=(10.0, math.inf, 5.0))
    assert members(make_plan(infos(1, 1, 1), PlanOptions("none"), None, profile)) == [(2,), (0,), (1,)]


def test_element_types_do_not_share_buckets() -> None:
    parameters = [*infos(10, 10), *infos(10, 10, dtype="bfloat16")]
    plan = make_plan(parameters, PlanOptions(10**6))
    assert members(plan) == [(3, 2), (1, 0)]


@pytest.mark.parametrize("buckets", [1, 2, 4, 5, 12, 100])
def test_four_priorities_are_urgent_near_the_input(buckets: int) -> None:
    plan = make_plan(infos(*[10] * buckets), PlanOptions("none"))
    priorities = [bucket.priority for bucket in plan.buckets]
    assert priorities == sorted(priorities)
    assert set(priorities) == set(range(min(buckets, 4)))


def test_large_layers_do_not_share_levels() -> None:
    """As in AlexNet: buckets that are needed first overtake those that were ready first, layer by
    layer.
    """
    plan = make_plan(infos(34, 614, 885, 1327, 884, 37752, 16781, 4097), PlanOptions("none"))
    by_layer = [bucket.priority for bucket in reversed(plan.buckets)]
    assert by_layer == [3, 3, 3, 3, 3, 2, 1, 0]


def test_the_order_of_use_sets_priorities() -> None:
    """Here the last parameter of the model is used first."""
    profile = dataclasses.replace(even_profile(3), use_s=(20.0, 10.0, 0.0))
    plan = make_plan(infos(1000, 1000, 1000), PlanOptions("none"), NETWORK, profile)
    assert {bucket.parameters: bucket.priority for bucket in plan.buckets} == {(2,): 2, (1,): 1, (0,): 0}


def test_levels_cost_little() -> None:
    """Four levels wait no longer than one, and hardly longer than a level for each bucket."""
    parameters = infos(*[1 << (6 + index * 5 % 9) for index in range(20)])
    profile, costs = even_profile(20, 1.0), CostModel(0.01, 1e-3)
    plan = make_plan(parameters, PlanOptions("none"), costs, profile)
    equal = BucketPlan(plan.parameters, tuple(dataclasses.replace(bucket, priority=0) for bucket in plan.buckets))
    waited = [exposure(one, profile, costs).total_s for one in (as_needed(plan, profile), plan, equal)]
    assert waited[0] <= waited[1] + 1e-6 <= 1.1 * waited[0] + 1e-6
    assert waited[1] < waited[2]


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [("automatic", [None, None]), ("ring", ["ring", "ring"]), ("hybrid", ["ring", "halving-doubling"])],
)
def test_algorithms(algorithm: str, expected: list[str | None]) -> None:
    plan = make_plan(infos(34_944, 4_097_000), PlanOptions("none", algorithm))
    assert [bucket.algorithm for bucket in plan.buckets] == expected


def test_exposure_of_buckets_that_fit_windows() -> None:
    """Only the first layer's bucket, which nothing can hide, is waited for."""
    plan = make_plan(infos(*[250] * 4), PlanOptions("none"))
    found = exposure(plan, even_profile(4), NETWORK)
    assert found.issued_s == (10.0, 20.0, 30.0, 40.0)
    assert found.ended_s == (12.0, 22.0, 32.0, 42.0)
    assert found.waited_s == (0.0, 0.0, 0.0, 2.0)


def test_urgent_buckets_go_past_others() -> None:
    """A late large bucket (100 s) lets the first layer's (2 s) pass."""
    infos_of_two = infos(250, 24_750)
    profile = StepProfile((20.0, 10.0), (0.0, 10.0), 20.0, 20.0)
    urgent = BucketPlan(tuple(infos_of_two), (PlannedBucket((1,)), PlannedBucket((0,), priority=1)))
    equal = BucketPlan(tuple(infos_of_two), (PlannedBucket((1,)), PlannedBucket((0,))))
    assert exposure(urgent, profile, NETWORK).ended_s == (112.0, 22.0)
    assert exposure(urgent, profile, NETWORK).waited_s == (80.0, 2.0)
    assert exposure(equal, profile, NETWORK).waited_s == (0.0, 92.0)


def test_updates_hide_later_buckets() -> None:
    """The first bucket's update takes 25 s, in which the second, 20 s late, arrives."""
    profile = dataclasses.replace(even_profile(2, 5.0), update_s_per_byte=0.025)
    plan = BucketPlan(tuple(infos(250, 7250)), (PlannedBucket((1,)), PlannedBucket((0,), priority=1)))
    found = exposure(plan, profile, NETWORK)
    assert found.ended_s == (37.0, 12.0)
    assert found.waited_s == (0.0, 2.0)


def test_a_bucket_is_not_started_before_earlier_ones() -> None:
    parameters = tuple(infos(250, 250))
    plan = BucketPlan(parameters, (PlannedBucket((0,)), PlannedBucket((1,))))
    assert exposure(plan, even_profile(2), NETWORK).issued_s == (20.0, 20.0)


def test_unused_parameters_are_not_awaited() -> None:
    profile = StepProfile((math.inf, 10.0), (math.inf, 0.0), 10.0, 10.0)
    found = exposure(make_plan(infos(9, 250), PlanOptions("none"), None, profile), profile, NETWORK)
    assert found.total_s == pytest.approx(2.0)


def test_automatic_fusion_is_no_worse_than_any_size() -> None:
    parameters = infos(*[1 << (6 + index % 9) for index in range(40)])
    for latency in (1e-6, 1e-4, 1e-2):
        costs = CostModel(latency, 1e-8)
        profile = even_profile(40, 1e-4)
        best = make_plan(parameters, PlanOptions("automatic"), costs, profile)
        for fusion in ("none", 1 << 14, 1 << 16, 1 << 20):
            other = make_plan(parameters, PlanOptions(fusion), costs, profile)
            allowed = 1.05 * price(other, profile, costs) + 0.1 * latency * len(other.buckets) + 1e-5
            assert price(best, profile, costs) <= allowed


def test_a_slow_network_does_not_hide_small_layers() -> None:
    """All waits are for the large layer's bytes, and yet the small first layers stay apart."""
    profile = StepProfile((0.6, 0.5, 0.4), (0.0, 0.1, 0.2), 0.6, 0.3)
    parameters, costs = infos(35_000, 3_700_000, 37_000_000), CostModel(1e-4, 1e-8)
    plan = make_plan(parameters, PlanOptions("automatic"), costs, profile)
    assert members(plan) == [(2,), (1,), (0,)]
    assert [bucket.priority for bucket in plan.buckets] == [0, 1, 2]


def test_automatic_fusion_by_latency() -> None:
    """Where messages cost nothing layers stay apart; where they cost much they share buckets."""
    parameters, profile = infos(*[4096] * 20), even_profile(20, 1e-4)
    numbers = [
        len(make_plan(parameters, PlanOptions("automatic"), CostModel(latency, 1e-9), profile).buckets)
        for latency in (0.0, 1e-3)
    ]
    assert numbers[0] > numbers[1]


def test_windows_of_layers() -> None:
    """Three layers, of which the last is never used, and the others share a bucket."""
    parameters = [ParameterInfo(name, 10, "float32", 4) for name in ("0.weight", "0.bias", "1.weight", "scale")]
    profile = StepProfile((6.0, 5.0, 3.0, math.inf), (0.5, 0.6, 2.0, math.inf), 7.0, 3.0)
    plan = BucketPlan(tuple(parameters), (PlannedBucket((3,)), PlannedBucket((2, 1, 0))))
    first, second, unused = layer_windows(plan, profile)
    assert (first.layer, first.nbytes, first.buckets, first.window_s, first.first_of) == ("0", 80, (1,), 1.5, (1,))
    assert (second.layer, second.buckets, second.window_s, second.first_of) == ("1", (1,), 6.0, ())
    assert (unused.layer, unused.buckets, unused.window_s, unused.first_of) == ("scale", (0,), None, (0,))


def test_text_of_a_plan() -> None:
    plan = make_plan(infos(30, 20), PlanOptions("none", "ring"))
    again = BucketPlan.from_json(plan.to_json())
    assert again == plan
    assert again.hash == plan.hash
    assert make_plan(infos(30, 20), PlanOptions(10**6, "ring")).hash != plan.hash
    assert str(plan).splitlines()[1] == "  0: 80 bytes, ring, priority 0: p1"


def test_rows_are_priced_by_moved_bytes() -> None:
    """Where they are little, they do not hold up the others, and plans are for these."""
    profile = dataclasses.replace(even_profile(3), row_bytes={0: 1000.0})
    plan = make_plan(infos(25_000, 250, 250), PlanOptions("none"), NETWORK, profile, rows=(0,))
    assert {bucket.parameters: bucket.rows for bucket in plan.buckets} == {(2,): False, (1,): False, (0,): True}
    assert exposure(plan, profile, NETWORK).waited_s == (0.0, 0.0, 2.0)
    assert exposure(plan, even_profile(3), NETWORK).waited_s[2] == 101.0


def test_exposure_of_divided_updates() -> None:
    """Two buckets: each is reduce-scattered in 3 s, updated in 1 s and all-gathered in 3 s, instead
    of 5 s for the average and 4 s for the update.
    """
    plan = make_plan(infos(1000, 1000), PlanOptions("none"))
    profile = dataclasses.replace(even_profile(2), update_s_per_byte=0.001, division=DivisionRule(4, 4000, False))
    found = exposure(plan, profile, NETWORK)
    assert found.issued_s == (10.0, 20.0)
    # The first layer is reduce-scattered until 23 s, updated first, and all-gathered from 24 s on.
    assert found.ended_s == (30.0, 27.0)
    assert found.waited_s == (0.0, 7.0)
    whole = dataclasses.replace(profile, division=None)
    assert exposure(plan, whole, NETWORK).waited_s == (0.0, 5.0)
    assert (update_seconds(plan, profile), update_seconds(plan, whole)) == (0.0, 8.0)


def test_parameters_are_exact_where_averages_are_rounded() -> None:
    """A reduce-scatter of 3 s and an all-gather of twice the bytes, 5 s, where an average of both
    gradients' bytes takes 5 s.
    """
    costs = Network(["a", "b"], 2, CostModel(1.0, 0.002), CostModel(1.0, 0.001)).rounded
    plan = make_plan(infos(1000), PlanOptions("none"))
    divided = dataclasses.replace(even_profile(1), division=DivisionRule(2, 1, chosen=True))
    assert exposure(plan, divided, costs).ended_s == (10.0 + 3.0 + 5.0,)
    assert exposure(plan, even_profile(1), costs).ended_s == (10.0 + 5.0,)
    assert communication_seconds(plan, divided, costs) == 3.0 + 5.0 - 1.0
    assert exposure(plan, divided, costs.at_speed(2.0)).ended_s == (10.0 + 4.0,)


@pytest.mark.parametrize(("update_s_per_byte", "divides"), [(3e-8, True), (1e-10, False)])
def test_rounded_averages_are_divided_where_updates_cost_more(update_s_per_byte: float, divides: bool) -> None:
    network = Network(["a", "b"], 2, CostModel(1e-6, 1e-8), CostModel(1e-6, 5e-9))
    profile = dataclasses.replace(
        even_profile(2, 1e-3), update_s_per_byte=update_s_per_byte, division=DivisionRule(8, 1, chosen=True)
    )
    plan = make_plan(infos(1_000_000, 1_000_000), PlanOptions("automatic"), network.rounded, profile)
    assert all(bucket.undivided != divides for bucket in plan.buckets)
    assert not any(
        bucket.undivided
        for bucket in make_plan(infos(1_000_000, 1_000_000), PlanOptions("automatic"), network.exact, profile).buckets
    )


def test_parts_of_divided_buckets_share_the_network() -> None:
    """The urgent bucket is reduce-scattered until 11 s and all-gathered until 20 s; the other one
    has the network then, for 3 s and 3 s.
    """
    parameters = tuple(infos(1000, 4000))
    plan = BucketPlan(parameters, (PlannedBucket((0,)), PlannedBucket((1,), priority=1)))
    profile = StepProfile((2.0, 2.0), (50.0, 0.0), 2.0, 60.0, division=DivisionRule(4, 0, False))
    assert exposure(plan, profile, NETWORK).ended_s == (26.0, 20.0)


def test_small_buckets_are_updated_by_all_ranks_where_that_is_faster() -> None:
    parameters = infos(100, 100_000, 100_000)
    costs = CostModel(latency_s=1e-3, seconds_per_byte=1e-9)
    rule = DivisionRule(4, 1, chosen=True)
    profile = dataclasses.replace(even_profile(3, 1e-3), update_s_per_byte=1e-8, division=rule)
    plan = make_plan(parameters, PlanOptions("automatic"), costs, profile)
    assert [bucket.undivided for bucket in plan.buckets if 0 in bucket.parameters] == [
        plan.buckets[-1].parameters == (0,)
    ]
    separate = make_plan(parameters, PlanOptions(1), costs, profile)
    assert not any(bucket.undivided for bucket in separate.buckets)  # buckets by the user's size are not chosen


def test_network_is_known_among_the_hosts_where_it_was_measured() -> None:
    four = Network(["a", "b", "c", "d"], 4, CostModel(1e-4, 3e-9), None)
    two = four.among(["b", "d"], 2)
    assert two == Network(["b", "d"], 2, CostModel(1e-4, pytest.approx(2e-9)), None)
    assert four.among(["a", "e"], 2) == Network(["a", "e"], 2, two.exact, None), "one has joined"
    assert four.among(["e", "f"], 2) is None
    assert four.among(["a", "a"], 2) is None, "within a host it is another network"
    one = Network(["a"], 2, CostModel(1e-6, 1e-10), None)
    assert one.among(["a"] * 3, 3) == Network(["a"], 3, CostModel(1e-6, pytest.approx(1e-10 * 4 / 3)), None)
    assert one.among(["a", "b"], 2) is None


@pytest.mark.parametrize("seed", range(20))
def test_few_bytes_stay_undivided(seed: int) -> None:
    draw = random.Random(seed)
    parameters = infos(*[draw.choice((10, 1000, 50_000, 1_000_000)) for _ in range(draw.randint(1, 12))])
    costs = CostModel(draw.choice((1e-6, 1e-3)), draw.choice((1e-10, 1e-8)))
    rule = DivisionRule(draw.randint(2, 8), draw.choice((1, 4000)), chosen=True)
    profile = dataclasses.replace(even_profile(len(parameters), 1e-3), update_s_per_byte=1e-9, division=rule)
    plan = make_plan(parameters, PlanOptions("automatic"), costs, profile)
    undivided = sum(plan.nbytes(bucket) for bucket in plan.buckets if bucket.undivided)
    assert undivided <= 0.02 * sum(one.nbytes for one in parameters)
    assert BucketPlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', '{"format": 9, "parameters": [], "buckets": []}'])
def test_text_that_is_no_plan(text: str) -> None:
    with pytest.raises(weft.ArgumentError, match="bucket plan"):
        BucketPlan.from_json(text)


def test_wrong_plans() -> None:
    parameters = (*infos(1, 2), *infos(1, dtype="float64"))
    with pytest.raises(weft.ArgumentError, match="expected each"):
        BucketPlan(parameters, (PlannedBucket((0, 1)),))
    with pytest.raises(weft.ArgumentError, match=r"float32.*float64"):
        BucketPlan(parameters, (PlannedBucket((0, 1, 2)),))
    with pytest.raises(weft.ArgumentError, match="parameter 1 is p1"):
        make_plan(infos(1, 2), PlanOptions()).check_parameters(infos(1, 3))
