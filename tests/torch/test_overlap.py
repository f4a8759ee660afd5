"""Tests of overlapped training: the bits of training without overlap."""

from __future__ import annotations

import pytest
import torch
from models import MODELS
from overlap_features import FEATURES, FEATURES_AND_SIZES
from overlap_setup import Setup, mlp, result, train
from training import check_same, check_same_on_all_ranks, compare

OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True),
    "sgd-foreach": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, foreach=True),
    "sgd-fused": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, fused=True),
    "adam-amsgrad": lambda parameters: torch.optim.Adam(parameters, amsgrad=True),
    "adamw-foreach": lambda parameters: torch.optim.AdamW(parameters, foreach=True),
    "adamw-fused": lambda parameters: torch.optim.AdamW(parameters, fused=True),
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "adamax": torch.optim.Adamax,
    "adagrad": torch.optim.Adagrad,
    "adadelta": torch.optim.Adadelta,
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, momentum=0.9, centered=True),
    "rprop": torch.optim.Rprop,
    "asgd": torch.optim.ASGD,
    "adafactor": torch.optim.Adafactor,
    "muon": lambda parameters: torch.optim.Muon([one for one in parameters if one.dim() == 2]),
}
NOT_DEFERRED = ("closure", "step_hooks")


@pytest.mark.parametrize("size", (1, 2, 3, 4))
@pytest.mark.parametrize("name", MODELS)
def test_models(workers, name: str, size: int) -> None:
    workers.run(size, model_job, name)


@pytest.mark.parametrize(("name", "size"), FEATURES_AND_SIZES)
def test_features(workers, name: str, size: int) -> None:
    workers.run(size, feature_job, name)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(workers, name: str) -> None:
    workers.run(2, optimizer_job, name)


def model_job(rank: int, _size: int, name: str) -> None:
    compare(name, rank, 20, fusion=2000)


def feature_job(rank: int, size: int, name: str) -> None:
    overlapped = Setup(overlapped=True)
    found = FEATURES[name](overlapped, rank)
    assert overlapped.deferred() == (name not in NOT_DEFERRED and size > 1)  # one rank has nothing to wait for
    check_same(found, FEATURES[name](Setup(overlapped=False, plan=overlapped.plan), rank))


def optimizer_job(rank: int, _size: int, name: str) -> None:
    overlapped = Setup(overlapped=True)
    found = optimized(overlapped, rank, name)
    assert overlapped.deferred()
    check_same(found, optimized(Setup(overlapped=False, plan=overlapped.plan), rank, name))
    check_same_on_all_ranks(found)


def optimized(setup: Setup, rank: int, name: str) -> dict[str, torch.Tensor]:
    model, optimizer = setup(mlp(rank), OPTIMIZERS[name])
    train(model, optimizer, rank, 30)
    return result(model, optimizer)
