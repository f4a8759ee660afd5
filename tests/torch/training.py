"""Training runs that are compared bit by bit: overlapped, and by the plain optimizer."""

from __future__ import annotations

from collections.abc import Callable

import agreement
import torch
import torch.distributed as dist
from models import MODELS, batch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import weft.torch

Optimizers = Callable[[nn.Module], torch.optim.Optimizer]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def check_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    """Both have the same bits."""
    assert one.keys() == other.keys()
    for key, value in one.items():
        assert value.isfinite().all(), f"{key} is not finite: the training diverges"
        assert torch.equal(value, other[key]), f"{key} differs by {(value - other[key]).abs().max()}"


def check_same_on_all_ranks(state: dict[str, Tensor]) -> None:
    """As `agreement.check_same_on_all_ranks`, except for the statistics of BatchNorm."""
    kept = {key: value for key, value in state.items() if "running" not in key and "num_batches" not in key}
    agreement.check_same_on_all_ranks(kept, dist.get_world_size())


def new_model(name: str, rank: int) -> nn.Module:
    torch.manual_seed(7 + rank)  # DataParallel must take the parameters of rank 0
    return MODELS[name]()


def train(model: nn.Module, optimizer: torch.optim.Optimizer, name: str, rank: int, steps: int) -> None:
    """Every rank has other data."""
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(steps):
        inputs, labels = batch(name, generator)
        optimizer.zero_grad()
        cross_entropy(model(inputs), labels).backward()
        optimizer.step()


def compare(name: str, rank: int, steps: int, make: Optimizers = sgd, **options: object) -> None:
    """Trains overlapped and not, by the same plan."""
    overlapped = weft.torch.DataParallel(new_model(name, rank), **options)
    optimizer = weft.torch.Overlapped(make(overlapped), overlapped)
    train(overlapped, optimizer, name, rank, steps)
    plain = weft.torch.DataParallel(new_model(name, rank), plan=overlapped.plan)
    train(plain, make(plain), name, rank, steps)
    check_same(overlapped.state_dict(), plain.state_dict())
    check_same_on_all_ranks(plain.state_dict())
