"""Tests of overlapped training's refusals, and of its behaviour at failures and ends."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from deaths import let_others_come
from overlap_setup import INPUTS, OUTPUTS, SAMPLES, Setup, mlp, step_after_rank_0, train
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from training import check_same, check_same_on_all_ranks

import weft
import weft.torch
from weft.torch.lookup import backend_of


def test_dead_rank(workers) -> None:
    for message in workers.run(3, death_job, dying=[2]):
        assert "rank 2" in message


def test_late_rank(workers) -> None:
    workers.run(2, timeout_job)


def test_exception_in_backward(workers) -> None:
    workers.run(1, broken_backward_job)


def test_sparse_gradients(workers) -> None:
    workers.run(2, sparse_job)


def test_gradient_after_its_bucket(workers) -> None:
    workers.run(2, again_job)


def test_unwrapped(workers) -> None:
    workers.run(2, unwrap_job)


def test_first_step_after_wrapping_again_is_deferred(workers) -> None:
    workers.run(2, wrapped_again_job)


def test_group_closed_before_the_update(workers) -> None:
    workers.run(2, closed_job)


def test_rank_that_ends_early_ends_its_last_step(workers) -> None:
    workers.run(2, early_job)


def test_ranks_that_differ(workers) -> None:
    workers.run(2, differing_job)


def test_other_backend(workers) -> None:
    workers.run(1, other_backend_job, backend="gloo")


def test_refused_arguments(workers) -> None:
    workers.run(1, arguments_job)


def test_refused_optimizers(workers) -> None:
    workers.run(1, optimizers_job)


def death_job(rank: int, size: int) -> str:
    model, optimizer = Setup(overlapped=True)(mlp(rank))
    train(model, optimizer, rank, 3)
    saved = {key: value.clone() for key, value in model.state_dict().items()}
    state = optimizer.state_dict()
    loss = mse_loss(model(torch.ones(SAMPLES, INPUTS)), torch.ones(SAMPLES, OUTPUTS))
    let_others_come(rank, 2, range(size))
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


def timeout_job(rank: int, size: int) -> None:
    """A step's averages time out; each use of one raises, such as the next forward."""
    group = dist.new_group(list(range(size)))
    model = weft.torch.DataParallel(mlp(rank), process_group=group, fusion="none")
    optimizer = weft.torch.Overlapped(torch.optim.SGD(model.parameters(), lr=0.01), model)
    train(model, optimizer, rank, 3)
    model.flush()
    backend_of(group).set_timeout(timedelta(seconds=1))  # until here, ranks may be late
    store = dist.distributed_c10d._get_default_store()
    loss = mse_loss(model(torch.ones(SAMPLES, INPUTS)), torch.ones(SAMPLES, OUTPUTS))
    if rank == 0:
        loss.backward()
        optimizer.step()
        with pytest.raises(weft.Timeout, match="rank 1"):
            model(torch.ones(SAMPLES, INPUTS))
        with pytest.raises(weft.Error, match="load a checkpoint"):
            model.state_dict()
        store.set("failed", "")
    else:
        store.get("failed")
        with pytest.raises(weft.Error):
            loss.backward()
            model.state_dict()


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


def wrapped_again_job(rank: int, _size: int) -> None:
    """With the bits of plain training."""
    nets = [mlp(0), mlp(0)]
    adams = [torch.optim.Adam(net.parameters(), lr=0.01) for net in nets]
    deferred = []
    for step in range(6):
        if step % 3 == 0:
            model = weft.torch.DataParallel(nets[0])
            optimizer = weft.torch.Overlapped(adams[0], model)
        inputs = torch.randn(SAMPLES, INPUTS, generator=torch.Generator().manual_seed(10 * step + rank))
        for module, one in ((model, optimizer), (nets[1], adams[1])):
            one.zero_grad()
            module(inputs).square().mean().backward()
            if module is nets[1]:
                for parameter in module.parameters():
                    dist.all_reduce(parameter.grad)
                    parameter.grad /= 2
            one.step()
        deferred.append(any(bucket.updates for bucket in model._reducer.buckets))
        if step % 3 == 2:
            model.unwrap()
    assert deferred == [False, True, True, True, True, True]
    check_same(nets[0].state_dict(), nets[1].state_dict())


def closed_job(rank: int, _size: int) -> None:
    """A program may end its group, and save the model afterwards."""
    setup = Setup(overlapped=True)
    model, optimizer = setup(mlp(rank))
    train(model, optimizer, rank, 5)
    plain, other = Setup(overlapped=False, plan=setup.plan)(mlp(rank))
    train(plain, other, rank, 5)
    dist.destroy_process_group()
    check_same(model.state_dict(), plain.state_dict())


def early_job(rank: int, _size: int) -> None:
    """Rank 0 leaves the group while rank 1 is still before its last backward."""
    model, optimizer = Setup(overlapped=True)(mlp(rank))
    train(model, optimizer, rank, 3)
    step_after_rank_0(model, optimizer, rank)
    dist.destroy_process_group()
    assert all(parameter.isfinite().all() for parameter in model.parameters())


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
