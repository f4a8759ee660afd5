"""Tests of communication modes as hooks of DDP: against torch's own, and in training."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from agreement import check_same_on_all_ranks
from models import MODELS, batch
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook, powerSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.functional import cross_entropy, mse_loss
from torch.nn.parallel import DistributedDataParallel

import weft
import weft.torch.hooks
from weft.torch import modes

STEPS = 8
SEVERAL_BUCKETS = 0.02
WARM = 2  # steps before torch's PowerSGD may begin

TORCHS: dict[str, tuple[Callable[[], modes.Mode], Callable[[], Any], Callable[..., Any] | None]] = {
    "exact": (modes.Exact, lambda: None, None),
    "exact_hook": (modes.Exact, lambda: None, default_hooks.allreduce_hook),
    "fp16": (lambda: modes.Cast(torch.float16), lambda: None, default_hooks.fp16_compress_hook),
    "bf16": (lambda: modes.Cast(torch.bfloat16), lambda: None, default_hooks.bf16_compress_hook),
    "power_rank_1": (
        lambda: modes.PowerSGD(1, start_step=WARM),
        lambda: powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=WARM),
        powerSGD_hook.powerSGD_hook,
    ),
    "power_rank_4": (
        lambda: modes.PowerSGD(4, start_step=WARM),
        lambda: powerSGD_hook.PowerSGDState(None, 4, start_powerSGD_iter=WARM),
        powerSGD_hook.powerSGD_hook,
    ),
}
"""By name: a mode, and torch's state and hook of the same formula."""
ROUNDED = {"exact": 1e-6, "power_rank_1": 1e-5, "power_rank_4": 1e-5}

TRAINED: dict[str, tuple[Callable[[], modes.Mode], float]] = {
    "exact": (modes.Exact, 0.9),
    "fp16": (lambda: modes.Cast(torch.float16), 0.9),
    "wire": (lambda: modes.Wire("bf16"), 0.9),
    "double_buffering": (modes.DoubleBuffering, 0.0),
    "deep": (lambda: modes.DeepGradientCompression(0.1, warmup_steps=20), 0.0),
    "coarse": (lambda: modes.CoarseGrainedSparse(0.25, chunk=16, momentum=0.5), 0.0),
    "variance": (modes.VarianceBased, 0.0),
    "power": (lambda: modes.PowerSGD(2), 0.9),
    "one_bit": (lambda: modes.OneBit(warmup_steps=10), 0.0),
}
"""By name: a mode and the momentum of the optimizer."""


@pytest.mark.parametrize("size", (2, 3))
@pytest.mark.parametrize("name", TORCHS)
def test_same_as_torch(workers, name: str, size: int) -> None:
    workers.run(size, compare_job, name)


@pytest.mark.parametrize("name", TRAINED)
def test_training_converges(workers, name: str) -> None:
    workers.run(2, training_job, name)


@pytest.mark.parametrize("name", ("deep", "power", "one_bit", "double_buffering"))
def test_resumed_training(workers, name: str) -> None:
    workers.run(2, resume_job, name)


@pytest.mark.parametrize("static_graph", (False, True))
def test_ways_to_use_ddp(workers, static_graph: bool) -> None:
    workers.run(3, options_job, static_graph)


def test_double_buffering_loses_no_gradient(workers) -> None:
    workers.run(2, late_job)


def test_joined_ranks(workers) -> None:
    workers.run(2, join_job)


def test_another_backend_is_refused(workers) -> None:
    workers.run(2, refusal_job)


def test_local_sgd_same_as_torch(workers) -> None:
    workers.run(3, local_sgd_job)


def test_diloco(workers) -> None:
    workers.run(2, diloco_job)


def trained(model: DistributedDataParallel, rank: int, steps: int = STEPS, after: Any = None) -> dict[str, Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(steps):
        inputs, labels = batch("mlp", generator)
        optimizer.zero_grad()
        cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        if after is not None:
            after(model)
    return model.module.state_dict()


def network(**options: Any) -> DistributedDataParallel:
    torch.manual_seed(1)
    return DistributedDataParallel(MODELS["mlp"](), **{"bucket_cap_mb": SEVERAL_BUCKETS, **options})


def compare_job(rank: int, size: int, name: str) -> None:
    make, torch_state, torch_hook = TORCHS[name]
    ours, theirs = network(), network()
    weft.torch.hooks.register(ours, make())
    if torch_hook is not None:
        theirs.register_comm_hook(torch_state(), torch_hook)
    mine, expected = trained(ours, rank), trained(theirs, rank)
    for key, value in expected.items():
        bound = ROUNDED.get(name, 0.0)
        torch.testing.assert_close(mine[key], value, rtol=bound, atol=bound)
    check_same_on_all_ranks(mine, size)


def training_job(rank: int, size: int, name: str) -> None:
    """A linear regression whose data are split between the ranks finds the weights."""
    make, momentum = TRAINED[name]
    torch.manual_seed(2)
    truth, inputs = torch.randn(24, 4), torch.randn(64, 24)
    part = slice(rank, None, size)
    model = DistributedDataParallel(nn.Linear(24, 4))
    hook = weft.torch.hooks.register(model, make())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=momentum)
    losses = []
    for _ in range(150):
        optimizer.zero_grad()
        loss = mse_loss(model(inputs[part]), inputs[part] @ truth)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if hook.flush():
        optimizer.step()
    assert losses[-1] < 0.02 * losses[0], f"from {losses[0]} to {losses[-1]}"
    check_same_on_all_ranks(model.module.state_dict(), size)


def resume_job(rank: int, size: int, name: str) -> None:
    """A new model and mode continue from a checkpoint, first with other buckets."""
    make, _ = TRAINED[name]
    whole = network()
    hook = weft.torch.hooks.register(whole, make())
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.05)
    resumed: list[Any] = []
    for step in range(STEPS):
        if step == STEPS // 2:
            resumed = [copy.deepcopy(whole.module.state_dict()), hook.mode.state_dict()]
        one_step(whole, optimizer, rank, step)
    again = network()
    again.module.load_state_dict(resumed[0])
    weft.torch.hooks.register(again, make()).mode.load_state_dict(resumed[1])
    optimizer = torch.optim.SGD(again.parameters(), lr=0.05)
    for step in range(STEPS // 2, STEPS):
        one_step(again, optimizer, rank, step)
    if name in ("deep", "power", "double_buffering"):  # the scale of one_bit is a bucket's
        for key, value in whole.module.state_dict().items():
            torch.testing.assert_close(again.module.state_dict()[key], value, rtol=1e-4, atol=1e-5)
    check_same_on_all_ranks(again.module.state_dict(), size)


def one_step(model: DistributedDataParallel, optimizer: torch.optim.Optimizer, rank: int, step: int) -> None:
    inputs, labels = batch("mlp", torch.Generator().manual_seed(1000 * rank + step))
    optimizer.zero_grad()
    cross_entropy(model(inputs), labels).backward()
    optimizer.step()


def options_job(rank: int, size: int, static_graph: bool) -> None:
    """Views of buckets with accumulation, or a static graph: the numbers are as without a hook."""
    found = []
    for mode in (None, modes.Exact(), modes.PowerSGD(1000, min_compression_rate=0.0)):
        model = network(gradient_as_bucket_view=True, static_graph=static_graph)
        if mode is not None:
            weft.torch.hooks.register(model, mode)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for step in range(4):
            with contextlib.nullcontext() if static_graph else model.no_sync():
                inputs, labels = batch("mlp", torch.Generator().manual_seed(50 * rank + step))
                cross_entropy(model(inputs), labels).backward()
            if not static_graph:  # torch wants the first step to be like the others
                cross_entropy(model(inputs.flip(1)), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
        found.append(model.module.state_dict())
        check_same_on_all_ranks(found[-1], size)
    for key, value in found[0].items():
        torch.testing.assert_close(found[1][key], value, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(found[2][key], value, rtol=1e-3, atol=1e-4)


def late_job(rank: int, _size: int) -> None:
    """With constant gradients, SGD ends where it ends without delay."""

    def weights(mode: modes.Mode) -> dict[str, Tensor]:
        model = network()
        hook = weft.torch.hooks.register(model, mode)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        for step in range(5):
            optimizer.zero_grad()
            sum((1 + rank + step) * parameter.sum() for parameter in model.module.parameters()).backward()
            optimizer.step()
        if hook.flush():
            optimizer.step()
        assert not hook.flush()
        return model.module.state_dict()

    on_time, late = weights(modes.Exact()), weights(modes.DoubleBuffering())
    for key, value in on_time.items():
        torch.testing.assert_close(late[key], value)


def join_job(rank: int, size: int) -> None:
    """A rank without inputs takes part in the operations of the others' hooks."""
    model = network()
    weft.torch.hooks.register(model, modes.PowerSGD(2))
    with model.join():
        trained(model, rank, 2 + 2 * rank)
    check_same_on_all_ranks(model.module.state_dict(), size)


def refusal_job(_rank: int, size: int) -> None:
    model = DistributedDataParallel(nn.Linear(2, 2), process_group=dist.new_group(list(range(size)), backend="gloo"))
    with pytest.raises(weft.ArgumentError, match="expected weft"):
        weft.torch.hooks.register(model, modes.Exact())


def local_sgd_job(rank: int, size: int) -> None:
    start, period = 3, 2
    ours, theirs = network(), network()
    weft.torch.hooks.register(ours, modes.LocalGradients(start))
    state = post_localSGD_hook.PostLocalSGDState(None, None, start, post_local_gradient_allreduce=False)
    theirs.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
    mine = modes.LocalSGD(ours.parameters(), modes.GroupCommunication(), period=period, warmup_steps=start)
    other = PeriodicModelAverager(period, start)
    found = trained(ours, rank, after=lambda _: mine.step())
    expected = trained(theirs, rank, after=lambda model: other.average_parameters(model.parameters()))
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-6, atol=1e-7)
    mine.synchronize()
    check_same_on_all_ranks(ours.module.state_dict(), size)


def diloco_job(rank: int, size: int) -> None:
    """The outer steps are those of the formula, also after a checkpoint, and training gains."""
    torch.manual_seed(3)
    truth, inputs = torch.randn(24, 4), torch.randn(64, 24)
    part = slice(rank, None, size)
    model = nn.Linear(24, 4)
    lr, momentum, period = 0.7, 0.9, 5
    outer = modes.DiLoCo(model.parameters(), modes.GroupCommunication(), period=period, lr=lr, momentum=momentum)
    inner = torch.optim.AdamW(model.parameters(), lr=0.02)
    start, velocity = model.weight.detach().clone(), torch.zeros_like(model.weight)
    losses = []
    for step in range(1, 301):
        inner.zero_grad()
        loss = mse_loss(model(inputs[part]), inputs[part] @ truth)
        loss.backward()
        inner.step()
        moved = start - model.weight.detach()
        assert outer.step() == (step % period == 0)
        losses.append(loss.item())
        if step % period == 0:
            dist.all_reduce(moved)
            moved /= size
            velocity = momentum * velocity + moved
            start = start - lr * (moved + momentum * velocity)
            torch.testing.assert_close(model.weight.detach(), start, rtol=1e-4, atol=1e-5)
            check_same_on_all_ranks({"weight": model.weight.detach()}, size)
        if step == 52:
            state = copy.deepcopy(outer.state_dict())
            here = [parameter.detach().clone() for parameter in model.parameters()]
            outer = modes.DiLoCo(here, modes.GroupCommunication(), period=period, lr=lr, momentum=momentum)
            outer._parameters = list(model.parameters())
            outer.load_state_dict(state)
    assert losses[-1] < 0.1 * losses[0], f"from {losses[0]} to {losses[-1]}"
    with pytest.raises(weft.ArgumentError, match="expected 'DiLoCo'"):
        outer.load_state_dict({"mode": "LocalSGD"})
