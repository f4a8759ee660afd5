"""Tests of divided updates: the bits of training in which every rank updates all."""

from __future__ import annotations

import copy
import math
import os
import random
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.distributed as dist
from deaths import let_others_come
from models import MODELS
from overlap_features import FEATURES, FEATURES_AND_SIZES
from overlap_setup import INPUTS, OUTPUTS, SAMPLES, VECTOR, Setup, batches, mlp, packed, result, sgd, train, whole_state
from test_overlap import OPTIMIZERS, optimized
from torch import nn
from torch.nn.functional import mse_loss
from training import check_same, check_same_on_all_ranks, compare

import weft
import weft.torch
from weft.torch import modes
from weft.torch.parallel.divided import division
from weft.torch.parallel.divided.division import BLOCK_ELEMENTS as BLOCK
from weft.torch.parallel.divided.division import share_bounds, whole_bounds
from weft.torch.parallel.divided.norm import norm_of
from weft.torch.parallel.plan import PlannedBucket


@pytest.mark.parametrize(("name", "size"), FEATURES_AND_SIZES)
def test_features(workers, name: str, size: int) -> None:
    workers.run(size, feature_job, name)


@pytest.mark.parametrize("name", MODELS)
def test_models(workers, name: str) -> None:
    workers.run(3, model_job, name)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(workers, name: str) -> None:
    workers.run(3, optimizer_job, name)


SIZES = ([1], [3 * BLOCK + 5], [7, 0, 2 * BLOCK, 1], [BLOCK] * 9, [10 * BLOCK, 3, 4 * BLOCK + 1])


@pytest.mark.parametrize("ranks", (1, 2, 3, 7))
def test_shares_end_where_allowed(ranks: int) -> None:
    for sizes in SIZES:
        bounds = share_bounds(sizes, ranks)
        ends = [sum(sizes[:place]) for place in range(len(sizes) + 1)]
        assert (bounds[0], bounds[-1], len(bounds)) == (0, sum(sizes), ranks + 1)
        assert bounds == sorted(bounds)
        for bound in bounds:
            assert (bound - max(end for end in ends if end <= bound)) % BLOCK == 0
        assert max(stop - start for start, stop in pairwise(bounds)) <= sum(sizes) / ranks + BLOCK


@pytest.mark.parametrize("ranks", (1, 2, 3, 4, 7))
@pytest.mark.parametrize("buckets", [[[100]] * 8, SIZES, [[5, 5], [3], [1, 0, 1]]])
def test_whole_tensors_are_dealt_evenly_over_all_buckets(buckets: list[list[int]], ranks: int) -> None:
    loads = [0] * ranks
    for sizes in sorted(buckets, key=sum, reverse=True):
        bounds = whole_bounds(sizes, loads)
        ends = {sum(sizes[:place]) for place in range(len(sizes) + 1)}
        assert (bounds[0], bounds[-1], len(bounds)) == (0, sum(sizes), ranks + 1)
        assert bounds == sorted(bounds) and ends.issuperset(bounds)
        loads = [load + stop - start for load, (start, stop) in zip(loads, pairwise(bounds), strict=True)]
    largest = max(map(max, buckets))
    assert max(loads) <= sum(map(sum, buckets)) / ranks + largest


@pytest.mark.parametrize("gradients", ("copy", "view"))
def test_gradients_that_are_kept_or_dropped_after_a_flush(workers, gradients: str) -> None:
    workers.run(3, flushing_job, gradients)


def test_state_is_divided(workers) -> None:
    workers.run(4, memory_job)


def test_whole_tensors_of_different_buckets_are_divided(workers) -> None:
    workers.run(4, whole_tensors_job)


@pytest.mark.parametrize("name", ("bf16", "fp16", "full"))
def test_bits_in_wire_formats(workers, name: str) -> None:
    """On one host, where nothing is rounded: tests/network has others."""
    workers.run(3, wire_job, name)


@pytest.mark.parametrize("size", (2, 3, 4))
def test_state_moves_with_new_plans(workers, size: int) -> None:
    workers.run(size, moving_job)


def test_report_has_the_operations_of_divided_buckets(workers) -> None:
    workers.run(2, report_job)


def test_one_rank_saves_and_holds_up_nobody(workers) -> None:
    workers.run(3, saving_rank_job)


def test_model_is_wrapped_again_while_its_first_wrapper_lives(workers) -> None:
    workers.run(2, wrapping_again_job)


@pytest.mark.parametrize("parameters", ("own", "host"))
def test_one_rank_reads_weights_before_a_forward_while_gradients_are_kept(workers, parameters: str) -> None:
    workers.run(2, keeping_job, parameters)


@pytest.mark.parametrize("gradients", ("copy", "view"))
def test_unwrapped_model_has_averages_as_gradients_or_none(workers, gradients: str) -> None:
    workers.run(3, unwrapping_job, gradients)


def test_update_does_not_wait_for_a_rank_that_is_away(workers) -> None:
    workers.run(3, away_job)


@pytest.mark.parametrize("place", ("backward", "step", "forward"))
def test_dead_rank(workers, place: str) -> None:
    for message in workers.run(3, death_job, place, dying=[2]):
        assert "rank 2" in message


def test_norm_is_same_however_gradients_are_divided() -> None:
    generator = torch.Generator().manual_seed(3)
    sizes = (5, 3 * division.BLOCK_ELEMENTS + 7, division.BLOCK_ELEMENTS)
    tensors = [torch.randn(size, generator=generator) * 10.0**place for place, size in enumerate(sizes)]
    whole = norm_of(tensors, [], None)
    assert whole == pytest.approx(float(torch.cat(tensors).double().norm()), rel=1e-12)
    blocks = [block for tensor in tensors for block in tensor.split(division.BLOCK_ELEMENTS)]
    assert norm_of(blocks[::-1], [], None) == whole
    assert math.isnan(norm_of([*tensors, torch.tensor([math.inf])], [], None))
    assert norm_of([torch.full((10,), 1e38)], [], None) == pytest.approx(math.sqrt(10) * 1e38)
    assert norm_of([], [], None) == 0


def test_modes_that_stay_undivided(workers) -> None:
    workers.run(2, undivided_mode_job)


def test_refusals(workers) -> None:
    workers.run(2, refusals_job)


def divided(**options: Any) -> Setup:
    division.BLOCK_ELEMENTS = VECTOR
    return Setup(overlapped=True, shard=1, **options)


def feature_job(rank: int, _size: int, name: str) -> None:
    setup = divided()
    found = FEATURES[name](setup, rank)
    check_same(found, FEATURES[name](Setup(overlapped=False, plan=setup.plan), rank))


def model_job(rank: int, _size: int, name: str) -> None:
    division.BLOCK_ELEMENTS = VECTOR
    compare(name, rank, 20, fusion=2000, shard=1)


def optimizer_job(rank: int, _size: int, name: str) -> None:
    setup = divided()
    found = optimized(setup, rank, name)
    check_same(found, optimized(Setup(overlapped=False, plan=setup.plan), rank, name))
    check_same_on_all_ranks(found)


def wire_job(rank: int, _size: int, name: str) -> None:
    def trained(setup: Setup) -> dict[str, torch.Tensor]:
        model, optimizer = setup(mlp(rank), torch.optim.Adam)
        train(model, optimizer, rank, 20)
        return result(model, optimizer)

    setup = divided(mode=lambda: modes.Wire(name))
    found = trained(setup)
    check_same(found, trained(Setup(overlapped=False, plan=setup.plan, mode=lambda: modes.Wire(name))))


def moving_job(rank: int, _size: int) -> None:
    """Plans with other buckets, of which the smallest are not divided."""

    def trained(setup: Setup) -> dict[str, torch.Tensor]:
        generator = random.Random(5)
        model, optimizer = setup(mlp(rank), torch.optim.Adam, shard=shard)
        for _ in range(12):
            order = generator.sample(range(6), 6)
            ends = sorted({*generator.sample(range(1, 6), 2), 6})
            buckets = tuple(PlannedBucket(tuple(order[start:end])) for start, end in pairwise([0, *ends]))
            model._reducer.use_plan(weft.torch.BucketPlan(model.plan.parameters, buckets))
            if (before := states[-1]) is not None:
                check_same({"state": packed(whole_state(optimizer))}, {"state": before})
            train(model, optimizer, rank, 2)
            states.append(packed(whole_state(optimizer)))
        return result(model, optimizer)

    states: list[torch.Tensor | None] = [None]
    shard: int | str = 200
    setup = divided()
    found = trained(setup)
    shard, states = "none", [None]
    check_same(found, trained(Setup(overlapped=False)))


def flushing_job(rank: int, _size: int, gradients: str) -> None:
    def trained(setup: Setup) -> dict[str, torch.Tensor]:
        model, optimizer = setup(mlp(rank), gradients=gradients)
        for step, (inputs, targets) in enumerate(batches(rank, 20)):
            if step % 3:
                optimizer.zero_grad()
            elif step % 4 == 0:
                model.module[0].zero_grad()  # some gradients of a bucket
            mse_loss(model(inputs), targets).backward()
            optimizer.step()
            if step % 2:
                model.flush()
        return result(model, optimizer)

    setup = divided()
    check_same(trained(setup), trained(Setup(overlapped=False, plan=setup.plan)))


def memory_job(rank: int, size: int) -> None:
    """Also after a new plan, which moves the shares."""
    torch.manual_seed(rank)
    net = nn.Sequential(nn.Linear(INPUTS, 500), nn.Tanh(), nn.Linear(500, 300), nn.Linear(300, OUTPUTS))
    model, optimizer = divided()(net, torch.optim.Adam, fusion="none")
    total = 2 * sum(one.numel() for one in net.parameters())
    whole = weft.torch.BucketPlan(model.plan.parameters, (PlannedBucket(tuple(range(6))),))
    for plan in (model.plan, whole):
        model._reducer.use_plan(plan)
        train(model, optimizer, rank, 3)
        assert not optimizer.optimizer.state, "nothing is left in the user's optimizer"  # type: ignore[attr-defined]
        own = sum(value.numel() for state in optimizer.state.values() for value in state.values() if value.dim())
        every: list[Any] = [None] * size
        dist.all_gather_object(every, own)
        assert sum(every) == total
        assert max(every) <= total / size * 1.02 + 4 * VECTOR * len(model.plan.buckets)


def whole_tensors_job(rank: int, size: int) -> None:
    torch.manual_seed(rank)
    net = nn.Sequential(*(nn.Linear(INPUTS, INPUTS, bias=False) for _ in range(2 * size)), nn.Linear(INPUTS, OUTPUTS))
    model, optimizer = divided()(net, torch.optim.Adafactor, fusion="none")
    train(model, optimizer, rank, 2)
    pieces = [piece for bucket in model._reducer.buckets for piece in bucket.division.pieces.values()]
    own = sum(piece.parameter.numel() for piece in pieces)
    every: list[Any] = [None] * size
    dist.all_gather_object(every, own)
    assert max(every) <= sum(every) / size + INPUTS * INPUTS


def report_job(rank: int, _size: int) -> None:
    model, optimizer = divided()(mlp(rank))
    train(model, optimizer, rank, 4)
    model.flush()
    for bucket in model.report().buckets:
        assert bucket.algorithm != "not recorded"
        assert bucket.communication_s is not None and bucket.communication_s > 0


def saving_rank_job(rank: int, _size: int) -> None:
    model, optimizer = divided()(mlp(rank))
    train(model, optimizer, rank, 3)
    if rank == 1:
        before = time.monotonic()
        assert len(model.state_dict()) == 6
        for refused in (optimizer.state_dict, optimizer.optimizer.state_dict):  # type: ignore[attr-defined]
            with pytest.raises(weft.UnsupportedError, match=r"full_state_dict\(\).* on all ranks"):
                refused()
        assert time.monotonic() - before < 5
    train(model, optimizer, rank, 3)


def wrapping_again_job(rank: int, _size: int) -> None:
    """The first wrapper lives on, and has what it divided."""
    first, optimizer = divided()(mlp(rank), torch.optim.Adam)
    train(first, optimizer, rank, 3)
    plain: torch.optim.Optimizer = optimizer.optimizer  # type: ignore[attr-defined]
    second = weft.torch.DataParallel(first.unwrap(), shard=1)
    again = weft.torch.Overlapped(plain, second)
    uses: list[Callable[[], Any]] = [plain.state_dict, plain.step, lambda: train(second, again, rank, 1)]
    for use in (*uses, lambda: whole_state(again), lambda: copy.deepcopy(again)):
        with pytest.raises(weft.UnsupportedError, match=r"full_state_dict\(\)"):
            use()
    plain.load_state_dict(whole_state(optimizer))
    train(second, again, rank, 2)
    steps = {float(state["step"]) for state in whole_state(again)["state"].values()}
    assert steps == {5.0}


def keeping_job(rank: int, _size: int, parameters: str) -> None:
    """The rank's update is done before the other's, and the forward has gradients to add to."""
    found = []
    for options in ({"shard": 1, "parameters": parameters}, {}):
        model = weft.torch.DataParallel(mlp(0), fusion=1, gradients="view", **options)
        optimizer = weft.torch.Overlapped(sgd(model.parameters()), model)
        for inputs, targets in batches(rank, 3):
            mse_loss(model(inputs), targets).backward()
            optimizer.step()
            if rank == 0:
                assert model.module[0].weight.isfinite().all()
        found.append(result(model, optimizer))
    check_same(*found)


def unwrapping_job(rank: int, _size: int, gradients: str) -> None:
    averages = {}
    for name, options, is_read in (
        ("plain", {}, False),
        ("divided", {"shard": 1}, False),
        ("read", {"shard": 1}, True),
    ):
        model = weft.torch.DataParallel(mlp(0), gradients=gradients, **options)
        optimizer = weft.torch.Overlapped(sgd(model.parameters()), model)
        model(torch.ones(SAMPLES, INPUTS) + rank).sum().backward()
        if is_read:
            optimizer.clip_grad_norm_(math.inf)
            optimizer.step()
            assert all(parameter.grad is not None for parameter in model.parameters())
        averages[name] = [parameter.grad for parameter in model.unwrap().parameters()]
    assert averages["divided"] == [None] * len(averages["plain"])
    assert all(map(torch.equal, averages["read"], averages["plain"]))
    model = weft.torch.DataParallel(mlp(0), gradients=gradients)
    model(torch.ones(SAMPLES, INPUTS))
    assert all(parameter.grad is None for parameter in model.unwrap().parameters())


def away_job(rank: int, size: int) -> None:
    """Rank 1 does other things after its step until the others have finished the next forward."""
    model, optimizer = divided()(mlp(rank))
    train(model, optimizer, rank, 3)
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait([f"forward {other}" for other in range(size) if other != 1])
    else:
        model(torch.ones(SAMPLES, INPUTS))
        store.set(f"forward {rank}", "")


def death_job(rank: int, size: int, place: str) -> str:
    model, optimizer = divided()(mlp(rank))
    train(model, optimizer, rank, 3)
    saved = {key: value.clone() for key, value in model.state_dict().items()}
    optimizer.zero_grad()

    def come_to(here: str) -> None:
        if here == place:
            let_others_come(rank, 2, range(size))
            if rank == 2:
                os._exit(1)

    with pytest.raises(weft.Error) as first:
        loss = mse_loss(model(torch.ones(SAMPLES, INPUTS)), torch.ones(SAMPLES, OUTPUTS))
        come_to("backward")
        loss.backward()
        come_to("step")
        optimizer.step()
        come_to("forward")
        model.flush()
        for _ in range(3):  # the dead rank may have done its part of a step
            train(model, optimizer, rank, 1)
    uses: list[Callable[[], Any]] = [model.state_dict, model.flush, optimizer.step, lambda: whole_state(optimizer)]
    for use in uses:
        with pytest.raises(weft.Error):
            use()
    net = model.unwrap()
    model.load_state_dict(saved)
    check_same(model.state_dict(), saved)
    net(torch.ones(SAMPLES, INPUTS)).sum().backward()
    torch.optim.SGD(net.parameters(), lr=0.01).step()
    return str(first.value)


class Counting(torch.optim.SGD):
    """Keeps a number of its own in its groups."""

    def step(self, closure: Any = None) -> Any:
        self.param_groups[0]["steps"] = self.param_groups[0].get("steps", 0) + 1
        return super().step(closure)


class Wrapping(torch.optim.Optimizer):
    """Steps another optimizer, as Lookahead does."""

    def __init__(self, parameters: Any) -> None:
        listed = list(parameters)
        super().__init__(listed, {"lr": 0.1})
        self.inner = torch.optim.Adam(listed)

    def step(self, closure: Any = None) -> Any:
        return self.inner.step(closure)


class Plain(torch.optim.Optimizer):
    """Keeps no state, and begins with a learning rate of 0."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.sub_(group["lr"] * parameter.grad)
        return closure


def replaced_step(parameters: Any) -> torch.optim.Optimizer:
    optimizer = torch.optim.Adam(parameters)
    step = optimizer.step
    optimizer.step = lambda *given: step(*given)  # type: ignore[method-assign]
    return optimizer


def undivided_mode_job(rank: int, _size: int) -> None:
    """Modes that are no reduce-scatter train as without `shard`, and the warning names them."""
    for name, mode in (("Wire", lambda: modes.Wire("fp8_e4m3")), ("PowerSGD", lambda: modes.PowerSGD(rank=1))):
        setup = divided(mode=mode)
        with pytest.warns(UserWarning, match=rf"shard=1: averages by {name}\(.* so updates are not divided"):
            model, optimizer = setup(mlp(rank), torch.optim.Adam)
        assert not model._reducer.divided
        train(model, optimizer, rank, 3)
        plain = Setup(overlapped=True, mode=mode, plan=setup.plan)(mlp(rank), torch.optim.Adam)
        train(*plain, rank, 3)
        check_same(result(model, optimizer), result(*plain))


def refusals_job(rank: int, _size: int) -> None:
    divided()(mlp(rank), Plain)
    with pytest.raises(weft.UnsupportedError, match="a copy of Wrapping does not update"):
        divided()(mlp(rank), Wrapping)
    with pytest.raises(weft.UnsupportedError, match="the step of this Adam was replaced"):
        divided()(mlp(rank), replaced_step)
    for shard in ("all", 0, -1, 0.5, True):
        with pytest.raises(weft.ArgumentError, match="shard="):
            divided()(mlp(rank), shard=shard)
    with pytest.raises(weft.ConfigError, match="shard="):
        divided()(mlp(rank), shard=1 + rank)
    with pytest.raises(weft.ConfigError, match=r"optimizer of rank .* differs"):
        divided()(mlp(rank), lambda parameters: torch.optim.SGD(parameters, lr=0.1 * (1 + rank)))
    for choose in (lambda ordered: ordered[:: 1 - 2 * rank], lambda ordered: ordered[: len(ordered) - rank]):
        with pytest.raises(weft.ConfigError, match=r"optimizer of rank \d has \S+ as parameter \d of group 0"):
            divided()(mlp(rank), lambda parameters, choose=choose: sgd(choose(list(parameters))))
    with pytest.raises(weft.UnsupportedError, match="keeps state of all parameters in its groups"):
        divided()(mlp(rank), lambda parameters: Counting(parameters, lr=0.1))
    model, optimizer = divided()(mlp(rank), sgd)
    with pytest.raises(weft.UnsupportedError, match=r"join\(\)"), model.join():
        for inputs, targets in batches(rank, 1):
            mse_loss(model(inputs), targets).backward()
    train(model, optimizer, rank, 2)
