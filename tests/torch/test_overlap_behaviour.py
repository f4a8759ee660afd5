"""Tests of what overlapped training does when: order, refusals, failures, uneven inputs."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
import torch.distributed as dist
from overlap_features import INPUTS, OUTPUTS, SAMPLES, Setup, mlp, train
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from training import check_same, check_same_on_all_ranks

import weft
import weft.torch

DIFFERENCE_MAX = 1e-5


def test_step_does_not_wait(workers) -> None:
    workers.run(2, late_job)


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


def test_refused_arguments(workers) -> None:
    workers.run(1, arguments_job)


def test_refused_optimizers(workers) -> None:
    workers.run(1, optimizers_job)


def test_optimizer_with_state_in_its_groups(workers) -> None:
    workers.run(2, counting_job)


def test_ranks_that_differ(workers) -> None:
    workers.run(2, differing_job)


def test_other_backend(workers) -> None:
    workers.run(1, other_backend_job, backend="gloo")


def test_uneven_inputs(workers) -> None:
    workers.run(3, uneven_job)


def test_dead_rank(workers) -> None:
    for message in workers.run(3, death_job, survivors=2):
        assert "rank 2" in message


def test_exception_in_backward(workers) -> None:
    workers.run(1, broken_backward_job)


def test_sparse_gradients(workers) -> None:
    workers.run(1, sparse_job)


def test_gradient_after_its_bucket(workers) -> None:
    workers.run(1, again_job)


def test_unwrapped(workers) -> None:
    workers.run(2, unwrap_job)


def test_group_closed_before_the_update(workers) -> None:
    workers.run(2, closed_job)


def test_rank_that_ends_early_ends_its_last_step(workers) -> None:
    workers.run(2, early_job)


def late_job(rank: int, _size: int) -> None:
    """Rank 1 begins its backward when rank 0's step has returned."""
    model, optimizer = Setup(overlapped=True)(mlp(0))
    train(model, optimizer, rank, 3)
    store = dist.distributed_c10d._get_default_store()
    loss = mse_loss(model(torch.ones(SAMPLES, INPUTS)), torch.ones(SAMPLES, OUTPUTS))
    if rank == 1:
        store.get("stepped")
    loss.backward()
    optimizer.step()
    if rank == 0:
        store.set("stepped", "")
    check_same_on_all_ranks(model.state_dict())


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
    """Whatever the plan has learned, a replay of the last one from a checkpoint gives the same."""
    model, optimizer = Setup(overlapped=True)(mlp(rank), replan_after=3, **options)
    train(model, optimizer, rank, 6)
    plan = weft.torch.BucketPlan.from_json(model.plan.to_json())
    assert plan == model.plan
    state = {key: value.clone() for key, value in model.state_dict().items()}
    train(model, optimizer, rank, 20)
    again, other = Setup(overlapped=False, plan=plan)(mlp(rank), fusion="none")
    again.load_state_dict(state)
    train(again, other, rank, 0)
    del other, optimizer
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


def arguments_job(_rank: int, _size: int) -> None:
    for options, message in [
        ({"fusion": "all"}, "fusion='all'"),
        ({"fusion": 0}, "fusion=0"),
        ({"gradients": "none"}, "gradients='none'"),
        ({"buffers": "sum"}, "buffers='sum'"),
        ({"replan_after": 0}, "replan_after=0"),
        ({"algorithm": "telepathy"}, "telepathy"),
    ]:
        with pytest.raises(weft.Error, match=message):
            weft.torch.DataParallel(mlp(0), **options)
    with pytest.raises(weft.ArgumentError, match="no parameter"):
        weft.torch.DataParallel(nn.ReLU())
    with pytest.raises(weft.UnsupportedError, match="not initialized"):
        weft.torch.DataParallel(nn.LazyLinear(3))
    net = mlp(0)
    model = weft.torch.DataParallel(net)
    with pytest.raises(weft.ArgumentError, match="unwrap"):
        weft.torch.DataParallel(net)
    with pytest.raises(weft.ArgumentError, match="another model"):
        weft.torch.DataParallel(nn.Linear(3, 4), plan=model.plan)
    with pytest.raises(weft.UnsupportedError, match="divide_by_initial_world_size"):
        model.join(divide_by_initial_world_size=False)


def optimizers_job(_rank: int, _size: int) -> None:
    model = weft.torch.DataParallel(mlp(0))
    with pytest.raises(weft.UnsupportedError, match="LBFGS"):
        weft.torch.Overlapped(torch.optim.LBFGS(model.parameters()), model)
    with pytest.raises(weft.ArgumentError, match=r"weft\.torch\.DataParallel"):
        weft.torch.Overlapped(torch.optim.SGD(model.parameters()), model.module)
    with pytest.raises(weft.ArgumentError, match="no parameter of the model"):
        weft.torch.Overlapped(torch.optim.SGD(mlp(0).parameters()), model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    overlapped = weft.torch.Overlapped(optimizer, model)
    assert isinstance(overlapped, torch.optim.Optimizer)
    assert overlapped.param_groups is optimizer.param_groups
    assert overlapped.defaults is optimizer.defaults
    assert overlapped.state is optimizer.state
    with pytest.raises(weft.ArgumentError, match=r"expected a torch\.optim\.Optimizer"):
        weft.torch.Overlapped(overlapped, model)


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


def differing_job(rank: int, _size: int) -> None:
    with pytest.raises(weft.ConfigError, match=r"weight \(\d+ x float32\) there and weight"):
        weft.torch.DataParallel(nn.Linear(3, 4 + rank))
    with pytest.raises(weft.ConfigError, match=r"fusion=\d+ there, fusion=\d+ here"):
        weft.torch.DataParallel(mlp(0), fusion=100 + rank)
    plans = [weft.torch.DataParallel(mlp(0), fusion=fusion).plan for fusion in ("none", 1 << 20)]
    with pytest.raises(weft.ConfigError, match=f"rank 1: {plans[1].hash}"):
        weft.torch.DataParallel(mlp(0), plan=plans[rank])


def other_backend_job(_rank: int, _size: int) -> None:
    with pytest.raises(weft.ArgumentError, match='init_process_group\\("weft"\\)'):
        weft.torch.DataParallel(mlp(0))
    dist.destroy_process_group()
    with pytest.raises(weft.ConfigError, match="init_process_group"):
        weft.torch.DataParallel(mlp(0))


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


def death_job(rank: int, _size: int) -> str:
    model, optimizer = Setup(overlapped=True)(mlp(rank))
    train(model, optimizer, rank, 3)
    saved = {key: value.clone() for key, value in model.state_dict().items()}
    state = optimizer.state_dict()
    loss = mse_loss(model(torch.ones(SAMPLES, INPUTS)), torch.ones(SAMPLES, OUTPUTS))
    if rank == 2:
        os._exit(1)
    with pytest.raises(weft.Error) as first:  # in backward, or where somebody waits first
        loss.backward()
        optimizer.step()
        model(torch.ones(SAMPLES, INPUTS))
    for use in (
        model.state_dict,
        optimizer.state_dict,
        model.flush,
        optimizer.step,
        lambda: model(torch.ones(SAMPLES, INPUTS)),
    ):
        with pytest.raises(weft.Error):
            use()
    net = model.unwrap()
    model.load_state_dict(saved)
    check_same(model.state_dict(), saved)
    plain = torch.optim.SGD(net.parameters(), lr=0.01)
    plain.load_state_dict(state)
    net(torch.ones(SAMPLES, INPUTS)).sum().backward()
    plain.step()
    return str(first.value)


class Faulty(torch.autograd.Function):
    @staticmethod
    def forward(_context: Any, values: Tensor) -> Tensor:
        return values.clone()

    @staticmethod
    def backward(_context: Any, _gradient: Tensor) -> Tensor:
        raise ValueError("no gradient")


def broken_backward_job(rank: int, _size: int) -> None:
    net = mlp(rank)
    model, optimizer = Setup(overlapped=True)(net)
    train(model, optimizer, rank, 3)
    saved = {key: value.clone() for key, value in model.state_dict().items()}
    hook = net[1].register_forward_hook(lambda _module, _inputs, outputs: Faulty.apply(outputs))
    with pytest.raises(ValueError, match="no gradient"):
        model(torch.ones(SAMPLES, INPUTS)).sum().backward()
    hook.remove()
    with pytest.raises(weft.Error, match="ended with an exception after"):
        model(torch.ones(SAMPLES, INPUTS))
    model.load_state_dict(saved)
    train(model, optimizer, rank, 1)


def sparse_job(_rank: int, _size: int) -> None:
    model = weft.torch.DataParallel(nn.Embedding(5, 3, sparse=True))
    with pytest.raises(weft.UnsupportedError, match="sparse"):
        model(torch.tensor([1, 2])).sum().backward()


def again_job(_rank: int, _size: int) -> None:
    """Reentrant checkpointing that begins in the middle of training."""
    from torch.utils.checkpoint import checkpoint

    class Changing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(INPUTS, INPUTS)
            self.segments = 1

        def forward(self, inputs: Tensor) -> Tensor:
            for _ in range(self.segments):
                inputs = checkpoint(self.layer, inputs, use_reentrant=True)
            return inputs

    model = weft.torch.DataParallel(Changing())
    for _ in range(2):
        model(torch.ones(SAMPLES, INPUTS, requires_grad=True)).sum().backward()
    model.module.segments = 2
    with pytest.raises(weft.Error, match=r"layer\.\w+ got a gradient again"):
        model(torch.ones(SAMPLES, INPUTS, requires_grad=True)).sum().backward()


def unwrap_job(rank: int, _size: int) -> None:
    """The plain module has the last update, and can be wrapped again."""
    setup = Setup(overlapped=True)
    model, optimizer = setup(mlp(rank))
    train(model, optimizer, rank, 5)
    net = model.unwrap()
    assert all(type(parameter) is nn.Parameter for parameter in net.parameters())
    plain, other = Setup(overlapped=False, plan=setup.plan)(mlp(rank))
    train(plain, other, rank, 5)
    check_same(net.state_dict(), plain.module.state_dict())
    again, optimizer = setup(net)
    train(again, optimizer, rank, 5)
    check_same_on_all_ranks(again.state_dict())


def early_job(rank: int, _size: int) -> None:
    """Rank 0 leaves the group while rank 1 is still before its last backward."""
    model, optimizer = Setup(overlapped=True)(mlp(rank))
    train(model, optimizer, rank, 3)
    store = dist.distributed_c10d._get_default_store()
    loss = mse_loss(model(torch.ones(SAMPLES, INPUTS)), torch.ones(SAMPLES, OUTPUTS))
    if rank == 1:
        store.get("stepped")
    loss.backward()
    optimizer.step()
    if rank == 0:
        store.set("stepped", "")
    dist.destroy_process_group()
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def closed_job(rank: int, _size: int) -> None:
    """A program may end its group, and save the model afterwards."""
    setup = Setup(overlapped=True)
    model, optimizer = setup(mlp(rank))
    train(model, optimizer, rank, 5)
    plain, other = Setup(overlapped=False, plan=setup.plan)(mlp(rank))
    train(plain, other, rank, 5)
    dist.destroy_process_group()
    check_same(model.state_dict(), plain.state_dict())
