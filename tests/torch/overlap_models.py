"""Features of models: how they use parameters and buffers."""

from __future__ import annotations

import torch
from overlap_setup import (
    INPUTS,
    OUTPUTS,
    SAMPLES,
    Result,
    Setup,
    batches,
    feature,
    mlp,
    result,
    train,
)
from torch import Tensor, nn
from torch.nn.functional import linear, mse_loss
from torch.utils.checkpoint import checkpoint

import weft.torch


def normalized(rank: int) -> nn.Module:
    torch.manual_seed(rank)
    return nn.Sequential(nn.Linear(INPUTS, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, OUTPUTS))


@feature
def buffers_broadcast(setup: Setup, rank: int) -> Result:
    model, optimizer = setup(normalized(rank))
    train(model, optimizer, rank)
    return result(model, optimizer)


@feature
def buffers_averaged(setup: Setup, rank: int) -> Result:
    model, optimizer = setup(normalized(rank), buffers="average")
    train(model, optimizer, rank)
    return result(model, optimizer)


@feature
def buffers_left(setup: Setup, rank: int) -> Result:
    model, optimizer = setup(normalized(rank), buffers="leave")
    train(model, optimizer, rank)
    return result(model, optimizer)


@feature
def batch_normalization_over_ranks(setup: Setup, rank: int) -> Result:
    model, optimizer = setup(weft.torch.convert_sync_batchnorm(normalized(rank)))
    train(model, optimizer, rank)
    return result(model, optimizer)


class Reused(nn.Module):
    """A module used twice, tied parameters, and uses without a call of a module."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(INPUTS, 8)
        self.twice = nn.Linear(8, 8)
        self.tied = nn.Linear(8, 8)
        self.tied.weight = self.twice.weight
        self.functional = nn.Linear(8, 8)
        self.direct = nn.Linear(8, 8)
        self.scale = nn.Parameter(torch.ones(8))
        self.listed = nn.ParameterList([torch.ones(8), torch.zeros(8)])
        self.last = nn.Linear(8, OUTPUTS)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.twice(torch.tanh(self.twice(self.first(inputs))))
        hidden = self.tied(hidden) * self.scale
        hidden = linear(torch.tanh(hidden), self.functional.weight, self.functional.bias)
        hidden = self.direct.forward(hidden) * self.listed[0] + self.listed[1]
        return self.last(hidden)


@feature
def reuse_and_functional_use(setup: Setup, rank: int) -> Result:
    torch.manual_seed(rank)
    model, optimizer = setup(Reused())
    train(model, optimizer, rank)
    return result(model, optimizer)


@feature
def functional_call(setup: Setup, rank: int) -> Result:
    """Parameters are replaced for a call; those of the model are trained."""
    model, optimizer = setup(mlp(rank))
    for inputs, targets in batches(rank):
        optimizer.zero_grad()
        scaled_parameters = {name: parameter * 1.5 for name, parameter in model.named_parameters()}
        mse_loss(torch.func.functional_call(model, scaled_parameters, (inputs,)), targets).backward()
        optimizer.step()
    return result(model, optimizer)


class OwnReference(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(60)[:OUTPUTS])
        self.weights = (self.weight,)

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs @ self.weights[0] @ self.weights[0].T


class Recurrent(nn.Module):
    """Modules that keep references to their own parameters, and this one to those of another."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(INPUTS, 5, batch_first=True)
        self.last = nn.Linear(5, OUTPUTS)
        self.kept = [self.last.weight]
        self.own = OwnReference()

    def forward(self, inputs: Tensor) -> Tensor:
        hidden, _ = self.lstm(inputs[:, None])
        return self.own(linear(hidden[:, 0], self.kept[0]) + self.last.bias)


@feature
def references_to_parameters(setup: Setup, rank: int) -> Result:
    torch.manual_seed(rank)
    model, optimizer = setup(Recurrent(), fusion="none")
    train(model, optimizer, rank)
    return result(model, optimizer)


@feature
def channels_last(setup: Setup, rank: int) -> Result:
    torch.manual_seed(rank)
    net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Conv2d(4, 3, 2), nn.Flatten(), nn.Linear(12, OUTPUTS))
    model, optimizer = setup(net.to(memory_format=torch.channels_last))
    train(model, optimizer, rank, shape=(SAMPLES, 2, 5, 5))
    return result(model, optimizer)


@feature
def several_element_types(setup: Setup, rank: int) -> Result:
    net = mlp(rank)
    net[0].to(torch.float64)
    net[4].to(torch.bfloat16)

    def cast(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(one.to(module.weight.dtype) for one in inputs)

    for layer in (net[0], net[2], net[4]):
        layer.register_forward_pre_hook(cast)
    model, optimizer = setup(net)
    for inputs, targets in batches(rank):
        optimizer.zero_grad()
        mse_loss(model(inputs).float(), targets).backward()
        optimizer.step()
    return result(model, optimizer)


@feature
def frozen_parameters(setup: Setup, rank: int) -> Result:
    net = mlp(rank)
    net[2].requires_grad_(False)
    model, optimizer = setup(net)
    train(model, optimizer, rank)
    return result(model, optimizer)


class Checkpointed(nn.Module):
    """Two segments, with a layer that both use."""

    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.use_reentrant = use_reentrant
        self.first = nn.Linear(INPUTS, 8)
        self.shared = nn.Linear(8, 8)
        self.own = nn.Linear(8, 8)
        self.last = nn.Linear(8, OUTPUTS)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs)
        hidden = checkpoint(self.shared, hidden, use_reentrant=self.use_reentrant)
        hidden = checkpoint(lambda x: self.shared(self.own(x).tanh()), hidden, use_reentrant=self.use_reentrant)
        return self.last(hidden)


def checkpointed(setup: Setup, rank: int, *, use_reentrant: bool) -> Result:
    torch.manual_seed(rank)
    model, optimizer = setup(Checkpointed(use_reentrant))
    train(model, optimizer, rank)
    return result(model, optimizer)


@feature
def checkpointing(setup: Setup, rank: int) -> Result:
    return checkpointed(setup, rank, use_reentrant=False)


@feature
def reentrant_checkpointing(setup: Setup, rank: int) -> Result:
    return checkpointed(setup, rank, use_reentrant=True)
