"""Tests of optimizers by how they update: element by element, by whole tensors, or all together."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from overlap_setup import VECTOR, Setup, mlp, result, train
from torch import Tensor, nn
from torch.optim import Optimizer
from training import check_same, check_same_on_all_ranks

import weft
import weft.torch
from weft.torch.parallel.divided import division

COUPLED = {
    "LBFGS": "all parameters together",
    "ZeroRedundancyOptimizer": "communicates itself",
    "PostLocalSGDOptimizer": "communicates itself",
    "SparseAdam": "sparse gradients",
    "FusedLAMB": "norm of all gradients",
    "SAM": "steps twice",
    "Prodigy": "step size",
    "DAdaptAdaGrad": "step size",
    "DAdaptAdam": "step size",
    "DAdaptAdan": "step size",
    "DAdaptLion": "step size",
    "DAdaptSGD": "step size",
}
"""The names that are refused, with words of the reasons."""


class PerTensor(Optimizer):
    """Updates one tensor after the other by its gradient, and a state of it."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.01, "decay": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    state = self.state[parameter]
                    mean = state.setdefault("mean", torch.zeros_like(parameter))
                    parameter.sub_(group["lr"] * self.direction(parameter, parameter.grad, mean, group["decay"]))
        return closure

    def direction(self, parameter: Tensor, gradient: Tensor, mean: Tensor, decay: float) -> Tensor:
        """The change that is subtracted; updates the mean of gradients."""
        raise NotImplementedError


class Lion(PerTensor):
    """Signs of means: element by element, which weft does not know."""

    def direction(self, parameter: Tensor, gradient: Tensor, mean: Tensor, decay: float) -> Tensor:
        sign = mean.lerp(gradient, 0.1).sign_()
        mean.lerp_(gradient, 0.01)
        return sign.add_(parameter, alpha=decay)


class LARS(PerTensor):
    """By the norms of a tensor and its gradient."""

    def direction(self, parameter: Tensor, gradient: Tensor, mean: Tensor, decay: float) -> Tensor:
        trust = parameter.norm() / (gradient.norm() + decay * parameter.norm() + 1e-6)
        mean.mul_(0.9).add_(gradient.add(parameter, alpha=decay) * trust)
        return mean


class LAMB(PerTensor):
    """By the norms of a tensor and of its update."""

    def direction(self, parameter: Tensor, gradient: Tensor, mean: Tensor, decay: float) -> Tensor:
        mean.lerp_(gradient, 0.1)
        update = mean / (gradient.abs() + 1e-3) + decay * parameter
        return update * (parameter.norm() / (update.norm() + 1e-6))


WHOLE = {kind.__name__: kind for kind in (Lion, LARS, LAMB)}


def test_optimizers_that_couple_tensors_are_refused_by_name(workers) -> None:
    workers.run(1, refusing_job)


@pytest.mark.parametrize("parameters", ["own", "host"])
@pytest.mark.parametrize("name", WHOLE)
def test_optimizers_of_whole_tensors(workers, name: str, parameters: str) -> None:
    workers.run(3, whole_job, name, parameters)


def refusing_job(_rank: int, _size: int) -> None:
    """Also classes that inherit from them, whether updates are divided or not."""
    for shard in ("none", 1):
        model = weft.torch.DataParallel(nn.Linear(3, 2), shard=shard)  # type: ignore[arg-type]
        for name, why in COUPLED.items():
            named = type(name, (torch.optim.SGD,), {})
            for kind in (named, type("Own", (named,), {})):
                with pytest.raises(weft.UnsupportedError, match=rf"^{name} cannot be overlapped: .*{why}"):
                    weft.torch.Overlapped(kind(model.parameters(), lr=0.1), model)
        with pytest.raises(weft.UnsupportedError, match="LBFGS cannot"):
            weft.torch.Overlapped(torch.optim.LBFGS(model.parameters()), model)
        weft.torch.Overlapped(type("SAMPLED", (torch.optim.SGD,), {})(model.parameters(), lr=0.1), model)


def whole_job(rank: int, _size: int, name: str, parameters: str) -> None:
    """In buckets of several tensors, none of which is cut."""
    division.BLOCK_ELEMENTS = VECTOR

    def trained(setup: Setup) -> dict[str, Tensor]:
        model, optimizer = setup(mlp(rank), WHOLE[name])
        train(model, optimizer, rank, 20)
        return result(model, optimizer)

    setup = Setup(overlapped=True, shard=1, parameters=parameters)
    found = trained(setup)
    check_same(found, trained(Setup(overlapped=False, plan=setup.plan)))
    check_same_on_all_ranks(found)
    divisions: Any = [bucket.division for bucket in setup.models[0]._reducer.buckets]
    updating = [sum(map(bool, counts)) for one in divisions for counts in one.owners.values()]
    assert set(updating) == {1}, "one rank updates a whole tensor"
