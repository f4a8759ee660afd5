"""Tests of the timing of overlapped training: order, plans, optimizers, uneven inputs."""

from __future__ import annotations

import copy
import gc
import time
import warnings
import weakref
from typing import Any

import pytest
import torch
import torch.distributed as dist
from overlap_setup import INPUTS, OUTPUTS, SAMPLES, Setup, batches, mlp, result, sgd, step_after_rank_0, train
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from training import check_same, check_same_on_all_ranks

import weft
import weft.torch

DIFFERENCE_MAX = 1e-5


def test_step_does_not_wait(workers) -> None:
    workers.run(2, late_job)


def test_step_that_is_not_deferred(workers) -> None:
    workers.run(2, not_deferred_job)


@pytest.mark.parametrize("gradients", ["copy", "view"])
@pytest.mark.parametrize("division", [{}, {"shard": 1}])
@pytest.mark.parametrize("of", ["penalty", "module", "layer"])
def test_second_backward_while_averages_are_under_way(
    workers, division: dict[str, Any], of: str, gradients: str
) -> None:
    """Of parameters that are used without the wrapper: autograd must not add to an average."""
    workers.run(2, second_backward_job, division, of, gradients)


@pytest.mark.parametrize("gradients", ["copy", "view"])
def test_backward_of_the_module_before_any_of_the_wrapper(workers, gradients: str) -> None:
    found = [one for division in ({}, {"shard": 1}) for one in workers.run(2, module_job, division, gradients)]
    assert len({str(one) for one in found}) == 1


def test_unreferenced_models_are_freed(workers) -> None:
    workers.run(2, freed_job)


def test_layers_are_updated_one_by_one(workers) -> None:
    workers.run(2, one_by_one_job)


@pytest.mark.parametrize("size", (2, 3))
def test_close_to_ddp_over_gloo(workers, size: int) -> None:
    workers.run(size, gloo_job)


@pytest.mark.parametrize("size", (2, 4))
@pytest.mark.parametrize(
    "options",
    [
        {"fusion": "none"},
        {"fusion": "lazy"},
        {"fusion": "automatic"},
        {"fusion": "none", "algorithm": "hybrid"},
        {"algorithm": "ring"},
    ],
    ids=str,
)
def test_options(workers, options: dict[str, Any], size: int) -> None:
    workers.run(size, options_job, options)


def test_new_plans_are_agreed(workers) -> None:
    plans = workers.run(3, learning_job)
    assert plans[0] == plans[1] == plans[2]


def test_optimizer_with_state_in_its_groups(workers) -> None:
    workers.run(2, counting_job)


def test_clipping_in_every_step_warns_once(workers) -> None:
    workers.run(2, clipping_job)


def test_uneven_inputs(workers) -> None:
    workers.run(3, uneven_job)


def clipping_job(rank: int, _size: int) -> None:
    sometimes, in_every_step = (lambda step: step % 2), (lambda step: step > 2)
    undivided, divided = Setup(overlapped=True), Setup(overlapped=True, shard=1)
    for setup, clips, expected, says in (
        (undivided, sometimes, 0, ""),
        (undivided, in_every_step, 1, "register_hook"),
        (divided, in_every_step, 1, "call optimizer.clip_grad_norm_(max_norm)"),
    ):
        model, optimizer = setup(mlp(rank))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for step, (inputs, targets) in enumerate(batches(rank, 8)):
                optimizer.zero_grad()
                mse_loss(model(inputs), targets).backward()
                if clips(step):
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
        found = [str(warning.message) for warning in caught if "clip_grad_norm_" in str(warning.message)]
        assert len(found) == expected, found
        assert all("does not overlap" in text and says in text for text in found)
        model.unwrap()


def second_backward_job(rank: int, _size: int, division: dict[str, Any], of: str, gradients: str) -> None:
    found = []
    for overlapped in (True, False):
        setup = Setup(overlapped=overlapped, **(division if overlapped else {}))
        model, optimizer = setup(mlp(rank), gradients=gradients)
        net = model.module
        for inputs, targets in batches(rank, 6):
            if rank == 1:
                time.sleep(0.05)  # rank 0's averages are still under way in its second backward
            optimizer.zero_grad()
            mse_loss(model(inputs), targets).backward()
            if of == "penalty":
                sum(parameter.square().sum() * (rank + 1) for parameter in net.parameters()).backward()
            else:
                (net if of == "module" else net[0])(inputs).sum().backward()
            optimizer.step()
        found.append(result(model, optimizer))
    check_same(*found)


def module_job(rank: int, size: int, division: dict[str, Any], gradients: str) -> list[float]:
    """The parameters after a step of the average, which is computed here as well."""
    model, optimizer = Setup(overlapped=True, **division)(mlp(rank), gradients=gradients)
    alone = copy.deepcopy(model.module)
    for net in (model.module, alone):
        for inputs, _ in batches(rank, 2):
            net(inputs).sum().backward()
    for parameter in alone.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= size
    optimizer.step()
    sgd(alone.parameters()).step()
    for own, expected in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(own.data, expected.data)
    return torch.cat([parameter.data.flatten() for parameter in model.parameters()]).tolist()


def late_job(rank: int, _size: int) -> None:
    """Rank 1 begins its backward when rank 0's step has returned."""
    model, optimizer = Setup(overlapped=True)(mlp(0))
    train(model, optimizer, rank, 3)
    step_after_rank_0(model, optimizer, rank)
    check_same_on_all_ranks(model.state_dict())


def freed_job(rank: int, _size: int) -> None:
    model, optimizer = Setup(overlapped=True)(mlp(0))
    train(model, optimizer, rank, 3)
    model.flush()
    left = [weakref.ref(parameter) for parameter in model.module.parameters()]
    del model, optimizer
    gc.collect()
    assert [parameter() for parameter in left] == [None] * len(left)


def not_deferred_job(rank: int, _size: int) -> None:
    model = weft.torch.DataParallel(mlp(0))
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = weft.torch.Overlapped(inner, model, defer=False)
    train(model, optimizer, rank, 3)
    saved = model.module[0].weight
    before = saved.detach().clone()
    mse_loss(model(torch.ones(SAMPLES, INPUTS)), torch.ones(SAMPLES, OUTPUTS)).backward()
    optimizer.step()
    assert not torch.equal(saved, before)


def one_by_one_job(rank: int, _size: int) -> None:
    model, optimizer = Setup(overlapped=True)(mlp(0), fusion="none")
    first, _, second, _, third = model.module
    train(model, optimizer, rank, 3)
    before = [layer.weight.detach().clone() for layer in (first, second, third)]
    saved = [layer.weight for layer in (first, second, third)]
    mse_loss(model(torch.ones(SAMPLES, INPUTS)), torch.ones(SAMPLES, OUTPUTS)).backward()
    optimizer.step()
    for number, use in enumerate([lambda: first.weight, lambda: second(torch.ones(9)), lambda: saved[2].grad]):
        use()
        unchanged = [torch.equal(weight, old) for weight, old in zip(saved, before, strict=True)]
        assert unchanged == [False] * (number + 1) + [True] * (2 - number)


def gloo_job(rank: int, size: int) -> None:
    model, optimizer = Setup(overlapped=True)(mlp(rank))
    train(model, optimizer, rank, 20)
    group = dist.new_group(list(range(size)), backend="gloo")
    theirs = DistributedDataParallel(mlp(rank), process_group=group)
    train(theirs, torch.optim.SGD(theirs.parameters(), lr=0.01, momentum=0.9, weight_decay=0.01), rank, 20)
    ours = model.state_dict()
    for key, value in theirs.state_dict().items():
        assert (ours[key] - value).abs().max() <= DIFFERENCE_MAX, key


def options_job(rank: int, _size: int, options: dict[str, Any]) -> None:
    """The replay of any learned plan without overlap from a checkpoint gives the same."""
    model, optimizer = Setup(overlapped=True)(mlp(rank), replan_after=3, **options)
    train(model, optimizer, rank, 6)
    plan = weft.torch.BucketPlan.from_json(model.plan.to_json())
    assert plan == model.plan
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    train(model, optimizer, rank, 20)
    replay, plain = Setup(overlapped=False, plan=plan)(mlp(rank))
    replay.load_state_dict(saved[0])
    plain.load_state_dict(saved[1])
    train(replay, plain, rank, 20)
    check_same(result(model, optimizer), result(replay, plain))
    check_same_on_all_ranks(model.state_dict())


def learning_job(rank: int, _size: int) -> str:
    """The order of gradients and uses is found: this model's is not that of its parameters."""

    class Backwards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(9, OUTPUTS)
            self.first = nn.Linear(INPUTS, 9)

        def forward(self, inputs: Tensor) -> Tensor:
            return self.last(self.first(inputs))

    torch.manual_seed(rank)
    model = weft.torch.DataParallel(Backwards(), fusion="lazy", replan_after=3, replan_every=4)
    optimizer = weft.torch.Overlapped(torch.optim.SGD(model.parameters(), lr=0.01), model)
    assert next(model.plan.parameters[i].name for i in model.plan.buckets[0].parameters) == "first.bias"
    train(model, optimizer, rank, 9)
    names = [model.plan.parameters[i].name for i in model.plan.buckets[0].parameters]
    assert {name.split(".")[0] for name in names[:2]} == {"last"}
    check_same_on_all_ranks(model.state_dict())
    return model.plan.hash


class Counting(torch.optim.SGD):
    """Its step size depends on a number in its groups, which every step increases."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            group["steps"] = group.get("steps", 0) + 1
            group["lr"] = 0.1 / group["steps"]
        return super().step(closure)


def counting_job(rank: int, _size: int) -> None:
    setup = Setup(overlapped=True)
    model, optimizer = setup(mlp(rank), Counting)
    with pytest.warns(UserWarning, match="in its groups"):
        train(model, optimizer, rank, 10)
    plain, other = Setup(overlapped=False, plan=model.plan)(mlp(rank), Counting)
    train(plain, other, rank, 10)
    check_same(model.state_dict(), plain.state_dict())


def uneven_job(rank: int, _size: int) -> None:
    """Rank 0, whose buffers others take, has the fewest inputs."""
    setup = Setup(overlapped=True)
    found = uneven(setup, rank)
    check_same(found, uneven(Setup(overlapped=False, plan=setup.plan), rank))
    check_same_on_all_ranks(found)
    assert found["module.1.num_batches_tracked"] == 4 + 3 * (dist.get_world_size() - 1)


def uneven(setup: Setup, rank: int) -> dict[str, Tensor]:
    torch.manual_seed(rank)
    net = nn.Sequential(nn.Linear(INPUTS, 8), nn.BatchNorm1d(8), nn.Linear(8, OUTPUTS))
    model, optimizer = setup(net)
    with model.join():
        train(model, optimizer, rank, 4 + 3 * rank)
    return model.state_dict()
