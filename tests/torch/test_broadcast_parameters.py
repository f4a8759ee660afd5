"""Tests of `weft.torch.broadcast_parameters`."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import weft
from weft.torch import broadcast_parameters


@pytest.mark.parametrize("size", (1, 3))
def test_broadcast_parameters(workers, size: int) -> None:
    workers.run(size, broadcast_job)


def test_refusals(workers) -> None:
    workers.run(2, refusals_job)


def model_of(rank: int) -> nn.Module:
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3), nn.Linear(3, 3, dtype=torch.complex64))
    model[1](torch.randn(10 + rank, 3))
    model[1].num_batches_tracked += rank
    return model


def assert_equal(model: nn.Module, other: nn.Module) -> None:
    for (name, mine), theirs in zip(model.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(mine, theirs), name


def broadcast_job(rank: int, size: int) -> None:
    for root in range(size):
        model = model_of(rank)
        assert broadcast_parameters(model, root) == root
        assert_equal(model, model_of(root))
    losses = [math.nan, 2.0, 2.0][:size] if size > 1 else [5.0]
    model = model_of(rank)
    best = broadcast_parameters(model, "lowest-loss", loss=torch.tensor(losses[rank]))
    assert best == (1 if size > 1 else 0)
    assert_equal(model, model_of(best))
    model = model_of(rank)
    assert broadcast_parameters(model, "average") is None
    everybody = [model_of(peer).state_dict() for peer in range(size)]
    for name, tensor in model.state_dict().items():
        values = torch.stack([state[name] for state in everybody])
        mean = values.mean(0) if values.is_floating_point() or values.is_complex() else values[0]
        torch.testing.assert_close(tensor, mean)
    assert all(parameter.requires_grad for parameter in model.parameters())


def refusals_job(rank: int, size: int) -> None:
    model = model_of(rank)
    for arguments in (
        {"root": size},
        {"root": -1},
        {"root": "best"},
        {"root": "lowest-loss"},
        {"root": 0, "loss": 1.0},
        {"root": "lowest-loss", "loss": math.nan},
    ):
        with pytest.raises(weft.ArgumentError):
            broadcast_parameters(model, **arguments)
    assert_equal(model, model_of(rank))
