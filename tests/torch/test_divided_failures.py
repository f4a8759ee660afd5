"""Failures of divided updates: a death in the middle of one, and memory that cannot be made."""

from __future__ import annotations

import contextlib
import copy
import os
import resource
import signal
from collections.abc import Iterator
from itertools import accumulate, pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from deaths import let_others_come
from overlap_setup import INPUTS, OUTPUTS, SAMPLES, VECTOR, Setup, mlp, train
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from training import check_same

import weft
import weft.torch
from weft import _weft
from weft.torch.parallel import native_updates
from weft.torch.parallel.divided import division
from weft.torch.parallel.plan import PlannedBucket

PARAMETERS = pytest.mark.parametrize("parameters", ["own", "host"])


@PARAMETERS
@pytest.mark.parametrize("kernel", ["weft's", "torch's"])
def test_rank_that_is_killed_while_it_writes(workers, kernel: str, parameters: str) -> None:
    workers.run(3, killed_job, kernel, parameters, dying={1})


@PARAMETERS
def test_memory_of_gradients_that_cannot_be_made_is_named_on_all_ranks(workers, parameters: str) -> None:
    workers.run(2, no_gradients_job, parameters)


@pytest.mark.parametrize("lacking", [0, 1])
@PARAMETERS
def test_memory_of_shares_that_cannot_be_made_is_named_on_all_ranks(workers, parameters: str, lacking: int) -> None:
    workers.run(2, no_shares_job, parameters, lacking)


@PARAMETERS
@pytest.mark.parametrize("change", ["plan", "optimizer"])
def test_model_that_cannot_be_divided_anew_is_not_trained_on(workers, parameters: str, change: str) -> None:
    workers.run(2, no_new_shares_job, parameters, change)


def killed_job(rank: int, _size: int, kernel: str, parameters: str) -> None:
    """Nothing hangs, and nobody trains on with parameters that are half written."""
    division.BLOCK_ELEMENTS = VECTOR
    model, optimizer = Setup(overlapped=True, shard=1, parameters=parameters)(mlp(rank))
    train(model, optimizer, rank, 2)
    model.flush()
    before = [one.clone() for one in memories(model)]
    let_others_come(rank, 1, range(3), "noted")
    if rank == 1:
        {"weft's": die_in_kernel, "torch's": die_in_torch}[kernel](optimizer)
    with pytest.raises(weft.PeerLost, match="rank 1"):
        train(model, optimizer, rank, 1)
        model.flush()
    with pytest.raises(weft.Error, match="load a checkpoint"):
        model(torch.ones(SAMPLES, INPUTS))
    check_share_of_the_dead(model, before, written=parameters == "host")
    check_own(model, rank)
    kept = model.unwrap()
    kept.load_state_dict(mlp(5).state_dict())
    assert torch.equal(kept[0].weight, mlp(5)[0].weight)
    mse_loss(kept(torch.ones(SAMPLES, INPUTS)), torch.ones(SAMPLES, OUTPUTS)).backward()
    torch.optim.SGD(kept.parameters(), lr=0.1).step()


def die_in_kernel(_: Any) -> None:
    """Makes the next update write the first half of each piece, by weft's kernel."""

    def half(settings: Any, places: list[Any]) -> None:
        _weft.sgd_update(settings, [(*place[:-1], place[-1] // 2) for place in places])
        os.kill(os.getpid(), signal.SIGKILL)

    native_updates._weft = SimpleNamespace(sgd_update=half)  # type: ignore[attr-defined]


def die_in_torch(optimizer: Any) -> None:
    """The same, by torch's optimizer."""
    own = optimizer._divided._own

    def half() -> None:
        pieces = [piece for group in own.param_groups for piece in group["params"]]
        own.param_groups = [{**own.param_groups[0], "params": list(map(first_half, pieces))}]
        torch.optim.SGD.step(own)
        os.kill(os.getpid(), signal.SIGKILL)

    own.step = half


def first_half(piece: Tensor) -> nn.Parameter:
    count = piece.numel() // 2
    found = nn.Parameter(piece.detach().view(-1)[:count])
    assert piece.grad is not None
    found.grad = piece.grad.view(-1)[:count]
    return found


def check_share_of_the_dead(model: weft.torch.DataParallel, before: list[Tensor], *, written: bool) -> None:
    """Of one bucket, rank 1 has written the first half of each piece; or nothing is seen of it."""
    changed = []
    for bucket, old in zip(model._reducer.buckets, before, strict=True):
        shares = bucket.division
        differs = (shares.parameters != old).tolist()  # type: ignore[union-attr]
        expected = list(first_halves(shares, 1))
        if any(found := [differs[place] for place, _ in expected]):
            changed.append(found == [is_written for _, is_written in expected])
    assert changed == ([True] if written else [])


def first_halves(shares: Any, rank: int) -> Iterator[tuple[int, bool]]:
    """The places of a rank's share, and whether they are in the first half of a piece."""
    begin = sum(shares.counts[:rank])
    starts = [0, *accumulate(sum(counts) for counts in shares.owners.values())]
    for start, stop in pairwise(starts):
        first, last = max(start, begin), min(stop, begin + shares.counts[rank])
        for place in range(first, last):
            yield place, place < first + (last - first) // 2


def check_own(model: weft.torch.DataParallel, rank: int) -> None:
    """A survivor has parameters of its own: the other one changes nothing in them."""
    for memory in memories(model):
        memory.fill_(rank)
    store = model._communication._store
    store.set(f"filled {rank}", "")
    store.wait(["filled 0", "filled 2"])
    assert all((memory == rank).all() for memory in memories(model))


def memories(model: weft.torch.DataParallel) -> list[Tensor]:
    """The memory of the parameters, by bucket."""
    return [bucket.division.parameters for bucket in model._reducer.buckets]  # type: ignore[union-attr]


@contextlib.contextmanager
def limited(lacks: bool, nbytes: int) -> Iterator[None]:
    """On a rank that lacks memory no file can be larger, as where a container is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    if lacks:
        resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def no_gradients_job(rank: int, _size: int, parameters: Any) -> None:
    with (
        limited(rank == 1, 1 << 16),
        pytest.raises(weft.ConfigError, match=r"cannot make \d+ bytes of symmetric memory"),
    ):
        weft.torch.DataParallel(nn.Linear(500, 500), shard=1, parameters=parameters)
    model = weft.torch.DataParallel(nn.Linear(500, 500), shard=1, parameters=parameters)
    check_step(model, overlapped=True)


def no_shares_job(rank: int, _size: int, parameters: Any, lacking: int) -> None:
    """Some buckets' shares can be made, and one's cannot; then the model is used all the same."""
    who = "" if rank == lacking else f"rank {lacking}: "
    for overlapped in (True, False):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(500, 10), nn.Linear(10, 100_000), nn.Linear(100_000, 5))
        model = weft.torch.DataParallel(net, shard=1, parameters=parameters, fusion="none")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with (
            limited(rank == lacking, 1 << 20),
            pytest.raises(weft.ConfigError, match=rf"{who}cannot make 2000\d{{3}} bytes of symmetric memory"),
        ):
            weft.torch.Overlapped(optimizer, model)
        assert optimizer.state_dict()["state"] == {}
        check_step(model, overlapped=overlapped)


def no_new_shares_job(rank: int, _size: int, parameters: Any, change: str) -> None:
    """The shares of the optimizer's state would not be those of the parameters."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(500, 1000), nn.Linear(1000, 5))
    model = weft.torch.DataParallel(net, shard=1, parameters=parameters, fusion="none")
    first = torch.optim.Adam(net[0].parameters())
    optimizer = weft.torch.Overlapped(first, model)
    model(torch.ones(1, 500)).mean().backward()
    optimizer.step()
    expected = {name: value.clone() for name, value in model.module.state_dict().items()}
    whole = weft.torch.BucketPlan(model.plan.parameters, (PlannedBucket(tuple(range(4))),))
    with limited(rank == 1, 1 << 16), pytest.raises(weft.ConfigError, match="cannot make"):
        if change == "plan":
            model._reducer.use_plan(whole)
        else:
            weft.torch.Overlapped(torch.optim.Adam(net[1].parameters()), model)
    for use in (
        lambda: model.load_state_dict({f"module.{name}": value for name, value in expected.items()}),
        lambda: model(torch.ones(1, 500)),
        optimizer.step,
        model.state_dict,
    ):
        with pytest.raises(weft.Error, match=r"load a checkpoint \(load_state_dict\) into a new model\. It failed"):
            use()
    check_same(model.unwrap().state_dict(), expected)


def check_step(model: weft.torch.DataParallel, *, overlapped: bool) -> None:
    """A step of a model has the bits of an undivided one's."""
    plain = weft.torch.DataParallel(copy.deepcopy(model), plan=model.plan)
    stepped(plain, overlapped=False)
    stepped(model, overlapped=overlapped)
    check_same(model.state_dict(), plain.state_dict())


def stepped(model: weft.torch.DataParallel, *, overlapped: bool) -> None:
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if overlapped:
        optimizer = weft.torch.Overlapped(optimizer, model)
        assert model._reducer.divided
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(1, 500)).mean().backward()
        optimizer.step()
    model.flush()
