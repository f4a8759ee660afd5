"""Parts of training loops, overlapped or not: model and optimizer, data, results.

A feature takes the factory of model and optimizer and the rank, trains, and returns the results to
compare.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import mse_loss

import weft.torch
from weft.torch.modes import Mode
from weft.torch.parallel import cache_blocking, weight_gradients

VECTOR = 16
"""The size of blocks, since the models are small: the last elements of a tensor are still computed
as in the whole.
"""
STEPS = int(os.environ.get("FEATURE_STEPS", "100"))
"""20 in `make test`: all that a feature does in some steps only, it still does twice then."""
SAMPLES, INPUTS, OUTPUTS = 3, 6, 2

Result = dict[str, Tensor]
Feature = Callable[["Setup", int], Result]
FEATURES: dict[str, Feature] = {}


class Setup:
    """Makes a model and its optimizer: overlapped, or plain by the overlapped one's plan."""

    def __init__(
        self,
        *,
        overlapped: bool,
        plan: weft.torch.BucketPlan | None = None,
        mode: Callable[[], Mode] | None = None,
        shard: int | str = "none",
        parameters: str = "own",
        block: int = VECTOR,
    ) -> None:
        self.overlapped = overlapped
        self.division = {"shard": shard, "parameters": parameters}
        self.plan = plan
        self.mode = mode
        self.block = block
        self.models: list[weft.torch.DataParallel] = []

    def __call__(
        self, net: nn.Module, make: Callable[..., torch.optim.Optimizer] | None = None, **options: Any
    ) -> tuple[weft.torch.DataParallel, torch.optim.Optimizer]:
        if self.plan is not None:
            options = {**options, "plan": self.plan}
        if self.mode is not None:
            options = {**options, "mode": self.mode()}
        cache_blocking.BLOCK_ELEMENTS = self.block
        # Of plain runs, torch makes all gradients itself.
        weight_gradients.BYTES_MIN = 1 if self.overlapped else sys.maxsize
        model = weft.torch.DataParallel(net, **{"fusion": 200, **self.division, **options})
        self.plan = model.plan
        self.models.append(model)
        optimizer = (make or sgd)(model.parameters())
        return model, self.overlap(optimizer, model)

    def deferred(self) -> bool:
        """Whether a bucket of the last model was updated after its step."""
        return any(span.kind == "update" for span in self.models[-1]._observer.spans)

    def overlap(self, optimizer: torch.optim.Optimizer, model: weft.torch.DataParallel) -> torch.optim.Optimizer:
        return weft.torch.Overlapped(optimizer, model) if self.overlapped else optimizer


def feature(function: Feature) -> Feature:
    FEATURES[function.__name__] = function
    return function


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=0.01)


def mlp(rank: int) -> nn.Sequential:
    torch.manual_seed(rank)
    return nn.Sequential(nn.Linear(INPUTS, 9), nn.Tanh(), nn.Linear(9, 7), nn.ReLU(), nn.Linear(7, OUTPUTS))


def batches(
    rank: int, steps: int = STEPS, shape: tuple[int, ...] = (SAMPLES, INPUTS)
) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(50 + rank)
    for _ in range(steps):
        yield torch.randn(shape, generator=generator), torch.randn(shape[0], OUTPUTS, generator=generator)


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    rank: int,
    steps: int = STEPS,
    shape: tuple[int, ...] = (SAMPLES, INPUTS),
) -> None:
    for inputs, targets in batches(rank, steps, shape):
        optimizer.zero_grad()
        mse_loss(model(inputs), targets).backward()
        optimizer.step()


def step_after_rank_0(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int) -> None:
    """A step in which rank 1 begins its backward when rank 0's step has returned."""
    store = dist.distributed_c10d._get_default_store()
    loss = mse_loss(model(torch.ones(SAMPLES, INPUTS)), torch.ones(SAMPLES, OUTPUTS))
    if rank == 1:
        store.get("stepped")
    loss.backward()
    optimizer.step()
    if rank == 0:
        store.set("stepped", "")


def whole_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The state of a plain or an overlapped optimizer, also if it is divided."""
    overlapped = isinstance(optimizer, weft.torch.Overlapped)
    return optimizer.full_state_dict() if overlapped else optimizer.state_dict()


def packed(state: dict[str, Any]) -> Tensor:
    """All tensors of a `whole_state` in one vector."""
    entries = [value for _, one in sorted(state["state"].items()) for _, value in sorted(one.items())]
    return torch.cat([value.flatten() for value in entries])


def result(model: nn.Module, optimizer: torch.optim.Optimizer) -> Result:
    """Parameters, buffers, and the optimizer's state."""
    found = dict(model.state_dict())
    for index, state in whole_state(optimizer)["state"].items():
        found |= {f"{index}.{key}": value for key, value in state.items() if isinstance(value, Tensor)}
    return {key: value.clone() for key, value in found.items()}
