"""Features of training loops: uses of gradients between backward and step."""

from __future__ import annotations

from collections.abc import Callable

import torch
from overlap_setup import (
    INPUTS,
    OUTPUTS,
    STEPS,
    Result,
    Setup,
    batches,
    feature,
    mlp,
    result,
    sgd,
    train,
)
from torch import Tensor, nn
from torch.nn.functional import mse_loss


@feature
def plain(setup: Setup, rank: int) -> Result:
    model, optimizer = setup(mlp(rank))
    train(model, optimizer, rank)
    return result(model, optimizer)


@feature
def gradients_are_views(setup: Setup, rank: int) -> Result:
    model, optimizer = setup(mlp(rank), gradients="view")
    train(model, optimizer, rank)
    return result(model, optimizer)


@feature
def accumulation(setup: Setup, rank: int) -> Result:
    model, optimizer = setup(mlp(rank))
    every = list(batches(rank))
    for micro_batches in (every[start : start + 3] for start in range(0, STEPS, 3)):
        optimizer.zero_grad()
        with model.no_sync():
            for inputs, targets in micro_batches[:-1]:
                mse_loss(model(inputs), targets).backward()
        mse_loss(model(micro_batches[-1][0]), micro_batches[-1][1]).backward()
        optimizer.step()
    return result(model, optimizer)


class Branches(nn.Module):
    """Uses one of its branches, or none, as the input says; one parameter is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(INPUTS, 8)
        self.branches = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])
        self.never = nn.Parameter(torch.ones(3))
        self.last = nn.Linear(8, OUTPUTS)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs)
        which = int(inputs.sum().item()) % 4
        return self.last(self.branches[which](hidden) if which < 3 else hidden)


def branches(rank: int) -> nn.Module:
    torch.manual_seed(rank)
    return Branches()


@feature
def unused_parameters(setup: Setup, rank: int) -> Result:
    model, optimizer = setup(branches(rank))
    train(model, optimizer, rank)
    assert model.module.never.grad is None
    return result(model, optimizer)


@feature
def unused_parameters_of_views(setup: Setup, rank: int) -> Result:
    model, optimizer = setup(branches(rank), gradients="view")
    train(model, optimizer, rank)
    assert model.module.never.grad is None
    return result(model, optimizer)


@feature
def unused_parameters_with_kept_gradients(setup: Setup, rank: int) -> Result:
    """Earlier gradients that are never dropped, some of which no rank makes again."""
    model, optimizer = setup(branches(rank))
    for inputs, targets in batches(rank):
        mse_loss(model(inputs), targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return result(model, optimizer)


@feature
def accumulation_of_branches(setup: Setup, rank: int) -> Result:
    """A parameter that was used in any micro-batch is averaged."""
    model, optimizer = setup(branches(rank))
    for step, (inputs, targets) in enumerate(batches(rank)):
        if step % 2 == 0:
            optimizer.zero_grad()
            with model.no_sync():
                mse_loss(model(inputs), targets).backward()
        else:
            mse_loss(model(inputs), targets).backward()
            optimizer.step()
    return result(model, optimizer)


@feature
def clipping_by_norm(setup: Setup, rank: int) -> Result:
    model, optimizer = setup(mlp(rank))
    saved = list(model.parameters())
    norms = []
    for step, (inputs, targets) in enumerate(batches(rank)):
        optimizer.zero_grad()
        mse_loss(model(inputs), targets).backward()
        parameters = saved if step % 2 else model.parameters()
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, 0.5, foreach=bool(step % 3)))
        optimizer.step()
    return {**result(model, optimizer), "norms": torch.stack(norms)}


@feature
def clipping_by_value(setup: Setup, rank: int) -> Result:
    model, optimizer = setup(mlp(rank))
    for inputs, targets in batches(rank):
        optimizer.zero_grad()
        mse_loss(model(inputs), targets).backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.05)
        optimizer.step()
    return result(model, optimizer)


@feature
def gradients_replaced(setup: Setup, rank: int) -> Result:
    """Between backward and step, and after it, when they are the next step's concern."""
    model, optimizer = setup(mlp(rank))
    first, second, *_ = model.parameters()
    for inputs, targets in batches(rank):
        optimizer.zero_grad()
        mse_loss(model(inputs), targets).backward()
        first.grad = first.grad * 0.5
        second.grad.mul_(0.25)
        optimizer.step()
        first.grad = torch.full_like(first, 7.0)
    return result(model, optimizer)


@feature
def ways_to_zero(setup: Setup, rank: int) -> Result:
    model, optimizer = setup(mlp(rank))
    zero = [
        lambda: optimizer.zero_grad(),
        lambda: optimizer.zero_grad(set_to_none=False),
        lambda: model.zero_grad(),
        lambda: model.zero_grad(set_to_none=False),
        lambda: model.module.zero_grad(),
        lambda: None,
    ]
    for step, (inputs, targets) in enumerate(batches(rank)):
        mse_loss(model(inputs), targets).backward()
        optimizer.step()
        zero[step % len(zero)]()
    return result(model, optimizer)


@feature
def several_backward_passes(setup: Setup, rank: int) -> Result:
    """Of one forward, and of two forwards."""
    model, optimizer = setup(mlp(rank))
    for inputs, targets in batches(rank):
        optimizer.zero_grad()
        outputs = model(inputs)
        outputs.mean().backward(retain_graph=True)
        mse_loss(outputs, targets).backward()
        (model(inputs) - model(-inputs)).square().mean().backward()
        optimizer.step()
    return result(model, optimizer)


class Hidden:
    """An output that hides its tensors."""

    def __init__(self, values: Tensor) -> None:
        self.values = values


class Hiding(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, inputs: Tensor) -> Hidden:
        return Hidden(self.net(inputs))


@feature
def hidden_outputs(setup: Setup, rank: int) -> Result:
    """Only its first gradient shows that a backward pass has begun."""
    model, optimizer = setup(Hiding(branches(rank)))
    for step, (inputs, targets) in enumerate(batches(rank)):
        if step % 3 == 0:
            optimizer.zero_grad()
        model(-inputs).values.square().mean().backward()
        mse_loss(model(inputs).values, targets).backward()
        optimizer.step()
    return result(model, optimizer)


@feature
def graph_of_gradients(setup: Setup, rank: int) -> Result:
    """A penalty on gradients of the inputs, which autograd.grad computes."""
    model, optimizer = setup(mlp(rank))
    for inputs, targets in batches(rank):
        optimizer.zero_grad()
        outputs = model(inputs.requires_grad_())
        (slope,) = torch.autograd.grad(outputs.sum(), inputs, create_graph=True)
        (mse_loss(outputs, targets) + slope.square().mean()).backward()
        optimizer.step()
    return result(model, optimizer)


def scaled(setup: Setup, rank: int, make: Callable[..., torch.optim.Optimizer], *, clip: bool) -> Result:
    model, optimizer = setup(mlp(rank), make)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14, growth_interval=7)
    scales = []
    for step, (inputs, targets) in enumerate(batches(rank)):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = mse_loss(model(inputs).float(), targets)
        if step % 11 == 5 and rank == 0:  # one rank overflows: no rank may step
            loss = loss * 1e30
        scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    assert len(set(scales)) > 1
    return {**result(model, optimizer), "scales": torch.tensor(scales)}


@feature
def scaler(setup: Setup, rank: int) -> Result:
    return scaled(setup, rank, sgd, clip=False)


@feature
def scaler_with_clipping(setup: Setup, rank: int) -> Result:
    return scaled(setup, rank, sgd, clip=True)


@feature
def scaler_of_fused_optimizer(setup: Setup, rank: int) -> Result:
    return scaled(setup, rank, lambda parameters: torch.optim.Adam(parameters, fused=True), clip=False)


@feature
def autocast_to_bfloat16(setup: Setup, rank: int) -> Result:
    model, optimizer = setup(mlp(rank))
    for inputs, targets in batches(rank):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mse_loss(model(inputs), targets).backward()
            optimizer.step()
    return result(model, optimizer)
