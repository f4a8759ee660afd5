"""Tests of what needs the shares of all ranks: checkpoints of divided updates, and norms."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from overlap_setup import INPUTS, OUTPUTS, VECTOR, Setup, batches, mlp, packed, result, train, whole_state
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.nn.functional import mse_loss
from training import check_same

import weft
import weft.torch
from weft.torch.parallel.divided import division
from weft.torch.parallel.divided.checkpoint import Share
from weft.torch.parallel.plan import PlannedBucket


@pytest.mark.parametrize("parameters", ("own", "host"))
def test_state_loads_on_other_numbers_of_ranks(workers, parameters: str) -> None:
    state = workers.run(3, saving_job, parameters)[0]
    workers.run(2, loading_job, parameters, *state)
    workers.run(4, loading_job, parameters, *state)


@pytest.mark.parametrize(("name", "parameters"), (("adam", "own"), ("rows", "own"), ("adam", "host")))
def test_shares_of_the_state_load_on_other_numbers_of_ranks(
    workers, name: str, parameters: str, tmp_path: Path
) -> None:
    workers.run(3, saving_shares_job, name, parameters, str(tmp_path))
    for size in (1, 2, 3, 4):
        workers.run(size, loading_shares_job, name, parameters, str(tmp_path))


def test_parameters_without_state_stay_so(workers, tmp_path: Path) -> None:
    workers.run(2, partial_job, str(tmp_path))


def test_shares_are_loaded_after_wrapping_again(workers, tmp_path: Path) -> None:
    workers.run(2, wrapping_again_job, str(tmp_path))


@pytest.mark.parametrize("parameters", ("own", "host"))
@pytest.mark.parametrize("size", (1, 2, 3, 4))
def test_clipping_without_gathering(workers, size: int, parameters: str) -> None:
    workers.run(size, clipping_job, parameters)


def divided(**options: Any) -> Setup:
    division.BLOCK_ELEMENTS = VECTOR
    return Setup(overlapped=True, shard=1, **options)


def saving_job(rank: int, _size: int, parameters: str) -> tuple[dict[str, Any], dict[str, Any]]:
    model, optimizer = divided(parameters=parameters)(mlp(rank), torch.optim.Adam)
    train(model, optimizer, rank, 5)
    alone = optimizer.full_state_dict(rank=0)  # type: ignore[attr-defined]
    assert bool(alone["state"]) == (rank == 0)
    return model.module.state_dict(), whole_state(optimizer)


def loading_job(rank: int, _size: int, parameters: str, values: dict[str, Any], state: dict[str, Any]) -> None:
    def continued(setup: Setup) -> dict[str, Any]:
        model, optimizer = setup(mlp(rank), torch.optim.Adam)
        train(model, optimizer, rank, 2)
        with model.exclusive():
            model.module.load_state_dict(values)
        optimizer.load_state_dict(copy.deepcopy(state))  # which is in memory that ranks share
        check_same({"all": packed(whole_state(optimizer))}, {"all": packed(state)})
        train(model, optimizer, rank, 3)
        return result(model, optimizer)

    setup = divided(parameters=parameters)
    found = continued(setup)
    check_same(found, continued(Setup(overlapped=False, plan=setup.plan)))


SHARE_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, amsgrad=True),
    "rows": lambda parameters: torch.optim.Adafactor(parameters, lr=0.01),
}
"""With a state per element, and per row and column of a tensor."""


def saving_shares_job(rank: int, size: int, name: str, parameters: str, path: str) -> None:
    model, optimizer = divided(parameters=parameters)(mlp(rank), SHARE_OPTIMIZERS[name])
    train(model, optimizer, rank, 3)
    optimizer.param_groups[0]["lr"] = 0.002
    mine = optimizer.sharded_state_dict()  # type: ignore[attr-defined]
    dcp.save(
        {"model": model.module.state_dict(), "optimizer": mine}, checkpoint_id=path, process_group=dist.group.WORLD
    )
    shares = [value for state in mine["state"].values() for value in state.values() if isinstance(value, Share)]
    if name == "adam":  # three elements of state for each of the parameters', each on one rank
        own: list[Any] = [None] * size
        dist.all_gather_object(own, sum(share.own.numel() for share in shares))
        assert sum(own) == 3 * sum(one.numel() for one in model.module.parameters())
    torch.save(packed(whole_state(optimizer)), f"{path}/whole-{rank}.pt")


def loading_shares_job(rank: int, size: int, name: str, parameters: str, path: str) -> None:
    def continued(setup: Setup) -> dict[str, Any]:
        model, optimizer = setup(mlp(rank), SHARE_OPTIMIZERS[name])
        mine = optimizer.sharded_state_dict(for_loading=True)  # type: ignore[attr-defined]
        values = model.module.state_dict()
        dcp.load({"model": values, "optimizer": mine}, checkpoint_id=path, process_group=dist.group.WORLD)
        with model.exclusive():
            model.module.load_state_dict(values)
        optimizer.load_sharded_state_dict(mine)  # type: ignore[attr-defined]
        check_same({"all": packed(whole_state(optimizer))}, {"all": torch.load(f"{path}/whole-0.pt")})
        assert optimizer.param_groups[0]["lr"] == 0.002
        train(model, optimizer, rank, 3)
        return result(model, optimizer)

    setup = divided(parameters=parameters)
    found = continued(setup)
    whole = continued(Setup(overlapped=True, plan=setup.plan))
    check_same(found, whole)
    if size > 1:
        model, optimizer = divided(parameters=parameters)(mlp(rank), SHARE_OPTIMIZERS[name])
        mine = optimizer.sharded_state_dict(for_loading=True)  # type: ignore[attr-defined]
        model._reducer.use_plan(weft.torch.BucketPlan(model.plan.parameters, (PlannedBucket(tuple(range(6))),)))
        with pytest.raises(weft.ArgumentError, match=r"rank \d, .* updates .* present buckets"):
            optimizer.load_sharded_state_dict(mine)  # type: ignore[attr-defined]


def partial_job(rank: int, _size: int, path: str) -> None:
    """A layer that the first run never updated."""
    group = dist.group.WORLD

    def made() -> tuple[weft.torch.DataParallel, Any]:
        net = nn.ModuleList([nn.Linear(INPUTS, OUTPUTS), nn.Linear(INPUTS, OUTPUTS)])
        net.forward = lambda data: net[0](data)  # type: ignore[method-assign]
        return divided()(net, torch.optim.Adam)

    model, optimizer = made()
    train(model, optimizer, rank, 2)
    dcp.save({"optimizer": optimizer.sharded_state_dict()}, checkpoint_id=path, process_group=group)
    before = whole_state(optimizer)
    model, optimizer = made()
    mine = optimizer.sharded_state_dict(for_loading=True)
    with pytest.raises(CheckpointException, match="Missing key"):
        dcp.load({"optimizer": mine}, checkpoint_id=path, process_group=group)
    planner = dcp.DefaultLoadPlanner(allow_partial_load=True)
    dcp.load({"optimizer": mine}, checkpoint_id=path, process_group=group, planner=planner)
    optimizer.load_sharded_state_dict(mine)
    assert whole_state(optimizer)["state"].keys() == before["state"].keys() == {0, 1}
    check_same({"all": packed(whole_state(optimizer))}, {"all": packed(before)})


def wrapping_again_job(rank: int, _size: int, path: str) -> None:
    group = dist.group.WORLD
    first, optimizer = divided()(mlp(rank), torch.optim.Adam)
    train(first, optimizer, rank, 3)
    dcp.save({"optimizer": optimizer.sharded_state_dict()}, checkpoint_id=path, process_group=group)  # type: ignore[attr-defined]
    second = weft.torch.DataParallel(first.unwrap(), shard=1)
    again = weft.torch.Overlapped(optimizer.optimizer, second)  # type: ignore[attr-defined]
    with pytest.raises(weft.UnsupportedError, match=r"full_state_dict\(\)"):
        again.sharded_state_dict()
    mine = again.sharded_state_dict(for_loading=True)
    dcp.load({"optimizer": mine}, checkpoint_id=path, process_group=group)
    again.load_sharded_state_dict(mine)
    train(second, again, rank, 2)
    assert {float(state["step"]) for state in whole_state(again)["state"].values()} == {5.0}


def clipping_job(rank: int, _size: int, parameters: str) -> None:
    def clipped(setup: Setup) -> dict[str, torch.Tensor]:
        model, optimizer = setup(mlp(rank))
        norms = []
        for inputs, targets in batches(rank, 20):
            optimizer.zero_grad()
            mse_loss(model(inputs), targets).backward()
            norms.append(optimizer.clip_grad_norm_(0.5))  # type: ignore[attr-defined]
            optimizer.step()
        assert min(norms) < 0.5 < max(norms)
        return {**result(model, optimizer), "norms": torch.stack(norms)}

    setup = divided(parameters=parameters)
    found = clipped(setup)
    check_same(found, clipped(Setup(overlapped=True, plan=setup.plan)))
    model, optimizer = setup(mlp(rank))
    for step, (inputs, targets) in enumerate(batches(rank, 20)):
        optimizer.zero_grad()
        mse_loss(model(inputs), targets).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        assert torch.allclose(norm, found["norms"][step], rtol=1e-5)
        optimizer.step()
    with pytest.raises(weft.ArgumentError, match="max_norm=0"):
        optimizer.clip_grad_norm_(0)  # type: ignore[attr-defined]
