"""Tests of parameters that are frozen and unfrozen after wrapping: as without data parallelism."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from overlap_setup import INPUTS, OUTPUTS, Result, Setup, batches, mlp, result, sgd, train
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from training import check_same, check_same_on_all_ranks

import weft
import weft.torch
from weft.torch import modes

DIFFERENCE_MAX = 2e-5
NOTICED_S = 10.0
"""A rank that waits looks for the others' calls after a second; hosts of tests are busy."""
OPTIONS: dict[str, dict[str, Any]] = {
    "buckets": {"fusion": 200},
    "views": {"fusion": 200, "gradients": "view"},
    "automatic": {"fusion": "automatic", "replan_after": 3},
    "lazy": {"fusion": "lazy", "replan_after": 2},
    "divided": {"fusion": 200, "gradients": "view", "shard": 1},
    "automatic and divided": {"fusion": "automatic", "replan_after": 3, "shard": 1},
}


@pytest.mark.parametrize("overlapped", (False, True))
@pytest.mark.parametrize("options", OPTIONS)
def test_backbone_is_unfrozen_and_frozen_again(workers, options: str, overlapped: bool) -> None:
    workers.run(2, whole_batch_job, options, overlapped)


@pytest.mark.parametrize(
    "make", (lambda: modes.PowerSGD(1, min_compression_rate=0.5), modes.OneBit, modes.DoubleBuffering)
)
def test_in_modes(workers, make: Callable[[], modes.Mode]) -> None:
    workers.run(2, mode_job, make().__class__.__name__)


def test_new_plan_covers_trained_parameters(workers) -> None:
    workers.run(2, plan_job)


def test_frozen_with_gradients_that_are_not_averaged(workers) -> None:
    workers.run(2, accumulation_job)


@pytest.mark.parametrize("buffers", (False, True))
@pytest.mark.parametrize("frozen", (False, True))
def test_change_on_one_rank_fails_all(workers, frozen: bool, buffers: bool) -> None:
    for message in workers.run(3, alone_job, frozen, buffers):
        assert "rank 1" in message, message
        assert "2.weight" in message, message


def test_different_changes_are_an_error_on_all(workers) -> None:
    for message in workers.run(3, different_job):
        assert "0.weight" in message or "2.weight" in message, message
        assert "requires_grad_" in message


def backbone(rank: int) -> nn.Sequential:
    net = mlp(rank)
    net[0].requires_grad_(False)
    net[2].requires_grad_(False)
    return net


def program(
    net: nn.Sequential, optimizer: torch.optim.Optimizer, step: Callable[[int], None], model: nn.Module
) -> None:
    """Trains a head, then all with a group added, then without the middle, then all again."""
    for number in range(24):
        if number == 5:
            net.requires_grad_(True)
            optimizer.add_param_group({"params": list(net[0].parameters()), "lr": 0.005})
        if number == 8:
            optimizer.add_param_group({"params": list(net[2].parameters())})
        if number == 12:
            net[2].requires_grad_(False)
        if number == 17:
            net[2].weight.requires_grad = True
        if number % 5 == 4:
            (model if number % 2 else optimizer).zero_grad()
        step(number)


def head(parameters: Any) -> torch.optim.Optimizer:
    return sgd([one for one in parameters if one.requires_grad])


def whole_batch_job(rank: int, size: int, options: str, overlapped: bool) -> None:
    """The averages of all ranks are the gradients of one process with the whole batch."""
    data = [list(batches(one, 24)) for one in range(size)]
    model, optimizer = Setup(overlapped=overlapped)(backbone(rank), head, **OPTIONS[options])
    net: Any = model.module

    def step(number: int) -> None:
        inputs, targets = data[rank][number]
        with model.no_sync():
            mse_loss(model(inputs * 0.5), targets).backward()
        mse_loss(model(inputs), targets).backward()
        optimizer.step()

    program(net, optimizer, step, model)
    plain = backbone(0)
    alone = head(plain.parameters())

    def step_alone(number: int) -> None:
        for factor, one in itertools.product((0.5, 1.0), range(size)):
            inputs, targets = data[one][number]
            (mse_loss(plain(inputs * factor), targets) / size).backward()
        alone.step()

    program(plain, alone, step_alone, plain)
    for (name, value), other in zip(plain.state_dict().items(), model.module.state_dict().values(), strict=True):
        assert torch.allclose(value, other, atol=DIFFERENCE_MAX), f"{name}: {(value - other).abs().max()}"
    check_same_on_all_ranks(model.state_dict())


def mode_job(rank: int, _size: int, name: str) -> None:
    """The bits of the mode without overlap, on all ranks; and state for trained parameters."""
    arguments: tuple[Any, ...] = (1,) if name == "PowerSGD" else ()

    def trained(setup: Setup) -> Result:
        model, optimizer = setup(backbone(rank), head)
        net: Any = model.module
        data = list(batches(rank, 24))

        def step(number: int) -> None:
            mse_loss(model(data[number][0]), data[number][1]).backward()
            optimizer.step()

        before = net[0].weight.detach().clone()
        program(net, optimizer, step, model)
        assert not torch.equal(before, net[0].weight)
        return result(model, optimizer)

    overlapped = Setup(overlapped=True, mode=lambda: getattr(modes, name)(*arguments))
    found = trained(overlapped)
    check_same_on_all_ranks({key: value for key, value in found.items() if key.startswith("module")})
    check_same(found, trained(Setup(overlapped=False, mode=lambda: getattr(modes, name)(*arguments))))


def plan_job(rank: int, _size: int) -> None:
    model, optimizer = Setup(overlapped=True)(backbone(rank), lambda parameters: sgd(parameters))
    net: Any = model.module

    def planned() -> list[str]:
        return [one.name for one in model.plan.parameters]

    assert planned() == ["4.weight", "4.bias"]
    train(model, optimizer, rank, 3)
    net.requires_grad_(True)
    assert planned() == ["4.weight", "4.bias"]
    train(model, optimizer, rank, 3)
    assert planned() == [name for name, _ in net.named_parameters()]
    net.requires_grad_(False)  # as to evaluate: nothing is averaged, and nothing has to be planned
    model(torch.ones(1, INPUTS))
    net.requires_grad_(True)
    net[0].requires_grad_(False)
    plan = model.plan
    train(model, optimizer, rank, 3)
    assert planned() == [name for name, _ in net.named_parameters() if not name.startswith("0")]
    assert type(net[0].weight) is nn.Parameter
    net[0].requires_grad_(True)
    train(model, optimizer, rank, 1)
    assert model.plan.hash == plan.hash
    assert all(bucket.updates for bucket in model._reducer.buckets), "deferred also then"


def accumulation_job(rank: int, size: int) -> None:
    """Frozen between the micro-batches; of one layer rank 0 alone has a gradient."""
    model, _ = Setup(overlapped=True)(mlp(rank), sgd)
    net: Any = model.module
    inputs = torch.full((2, INPUTS), float(rank + 1))
    with model.no_sync():
        if rank == 0:
            model(inputs).sum().backward()
    own = None if net[0].weight.grad is None else net[0].weight.grad.clone()
    net[0].requires_grad_(False)
    model(inputs).sum().backward()
    every: list[Any] = [None] * size
    dist.all_gather_object(every, own)
    assert torch.allclose(net[0].weight.grad, every[0] / size)
    model(inputs).sum().backward()
    assert next(one.name for one in model.plan.parameters) == "2.weight"
    assert torch.allclose(net[0].weight.grad, every[0] / size)


def failing(call: Callable[[], Any]) -> str:
    begin = time.monotonic()
    with pytest.raises(weft.ConfigError) as caught:
        call()
    assert time.monotonic() - begin < NOTICED_S
    return str(caught.value)


def alone_job(rank: int, _size: int, frozen: bool, buffers: bool) -> str:
    net = mlp(rank)
    net[2].requires_grad_(frozen)
    if buffers:
        net.append(nn.BatchNorm1d(OUTPUTS))
    model, optimizer = Setup(overlapped=True)(net)
    train(model, optimizer, rank, 2)
    if rank == 1:
        net[2].requires_grad_(not frozen)

    def steps() -> None:
        for inputs, targets in batches(rank, 2):
            mse_loss(model(inputs), targets).backward()
            optimizer.step()

    return failing(steps)


def different_job(rank: int, _size: int) -> str:
    net = backbone(rank)
    model, optimizer = Setup(overlapped=True)(net, head)
    train(model, optimizer, rank, 2)
    net[2 if rank == 1 else 0].requires_grad_(True)
    message = failing(lambda: model(torch.ones(3, INPUTS)))
    net.requires_grad_(True)  # nothing is broken: the ranks can agree
    values: Tensor = model(torch.ones(3, INPUTS))
    values.sum().backward()
    return message
