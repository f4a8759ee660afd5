"""Tests of divided updates where the ranks of a host have one copy of the parameters."""

from __future__ import annotations

import copy
import os
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from overlap_features import FEATURES, FEATURES_AND_SIZES
from overlap_setup import INPUTS, OUTPUTS, SAMPLES, VECTOR, Setup, mlp, result, train
from test_overlap import OPTIMIZERS, optimized
from torch import nn
from torch.nn.functional import mse_loss
from training import check_same, check_same_on_all_ranks

import weft
import weft.torch
from weft.torch.parallel.divided import division
from weft.torch.parallel.divided.one_copy import check_one_host

CHANGING = {"resumed", "changing_weights"}
"""Features that change parameters outside of the optimizer, which needs `exclusive`."""


@pytest.mark.parametrize(("name", "size"), FEATURES_AND_SIZES)
def test_features(workers, name: str, size: int) -> None:
    workers.run(size, feature_job, name)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(workers, name: str) -> None:
    workers.run(3, optimizer_job, name)


def test_ranks_share_the_memory_of_parameters(workers) -> None:
    workers.run(3, sharing_job)


def test_memory(workers) -> None:
    workers.run(3, memory_job)


def test_nothing_changes_before_all_ranks_have_stepped(workers) -> None:
    workers.run(2, waiting_job)


def test_stale_graphs_are_noticed(workers) -> None:
    workers.run(2, stale_graph_job)


@pytest.mark.parametrize("change", ["in place", "replaced", "state_dict"])
def test_changes_of_shared_parameters_end_all_ranks(workers, change: str) -> None:
    workers.run(2, changing_job, change)


def test_changes_by_numpy_are_found_in_the_debug_mode(workers) -> None:
    workers.run(2, hidden_change_job)


def test_exclusive(workers) -> None:
    workers.run(3, exclusive_job)


def test_new_plans_keep_one_copy(workers) -> None:
    workers.run(3, new_plan_job)


def test_unwrapped_models_have_their_own_parameters(workers) -> None:
    workers.run(2, unwrapping_job)


def test_a_forked_child_changes_nothing(workers) -> None:
    workers.run(2, forking_job)


def test_options(workers) -> None:
    workers.run(2, options_job)


def host(**options: Any) -> Setup:
    division.BLOCK_ELEMENTS = VECTOR
    return Setup(overlapped=True, shard=1, parameters="host", **options)


def feature_job(rank: int, size: int, name: str) -> None:
    setup = host()
    if name in CHANGING and size > 1:
        with pytest.raises(weft.Error, match="exclusive"):
            FEATURES[name](setup, rank)
        return
    found = FEATURES[name](setup, rank)
    check_same(found, FEATURES[name](Setup(overlapped=False, plan=setup.plan), rank))


def optimizer_job(rank: int, _size: int, name: str) -> None:
    setup = host()
    found = optimized(setup, rank, name)
    check_same(found, optimized(Setup(overlapped=False, plan=setup.plan), rank, name))
    check_same_on_all_ranks(found)


def sharing_job(rank: int, size: int) -> None:
    """A write through NumPy, which nobody should do, shows on all ranks."""
    model, optimizer = host()(mlp(rank), torch.optim.Adam)
    train(model, optimizer, rank, 2)
    model.flush()
    for turn, parameter in enumerate(model.module.parameters()):
        dist.barrier()
        if rank == turn % size:
            parameter.detach().numpy().flat[0] = 100 + turn
        dist.barrier()
        assert parameter.flatten()[0] == 100 + turn
    dist.barrier()


def memory_job(_rank: int, size: int) -> None:
    """Of all ranks together: the parameters once."""
    for parameters in ("host", "own"):
        net = nn.Linear(1500, 2000)
        model = weft.torch.DataParallel(net, shard=1, parameters=parameters)  # type: ignore[arg-type]
        optimizer = weft.torch.Overlapped(torch.optim.SGD(model.parameters(), lr=0.1), model)
        model(torch.ones(1, 1500)).sum().backward()
        optimizer.step()
        model.flush()
        net.weight.sum()
        every: list[Any] = [None] * size
        dist.all_gather_object(every, share_of_mapping(net.weight.data_ptr()))
        copies = sum(every) / net.weight.nbytes
        # Pages of `own` that an all-gather writes are mapped by two ranks, so half of them count.
        assert copies == pytest.approx(1, rel=0.05) if parameters == "host" else copies > 1.4, copies


def share_of_mapping(address: int) -> int:
    """This process's share of the memory of the mapping at an address, in bytes (PSS)."""
    found = False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        if match := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            found = int(match[1], 16) <= address < int(match[2], 16)
        elif found and line.startswith("Pss:"):
            return 1024 * int(line.split()[1])
    raise AssertionError("there is no such mapping")


def waiting_job(rank: int, _size: int) -> None:
    """Rank 1 evaluates, after its backward, while rank 0 has called `step` long ago."""
    model, optimizer = host()(mlp(rank))
    train(model, optimizer, rank, 2)
    mse_loss(model(torch.ones(SAMPLES, INPUTS)), torch.ones(SAMPLES, OUTPUTS)).backward()
    if rank == 0:
        optimizer.step()
    else:
        before = [one.detach().clone() for one in model.module.parameters()]
        time.sleep(0.3)
        assert all(torch.equal(one, two) for one, two in zip(before, model.module.parameters(), strict=True))
        optimizer.step()
        model.flush()
        assert not any(torch.equal(one, two) for one, two in zip(before, model.module.parameters(), strict=True))
    train(model, optimizer, rank, 1)


def stale_graph_job(rank: int, _size: int) -> None:
    model, optimizer = host()(mlp(rank))
    loss = mse_loss(model(torch.ones(SAMPLES, INPUTS)), torch.ones(SAMPLES, OUTPUTS))
    loss.backward(retain_graph=True)
    optimizer.step()
    model.flush()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def changing_job(rank: int, _size: int, change: str) -> None:
    """One rank changes its parameters, as a program does that was not written for this."""
    model, optimizer = host()(mlp(rank))
    train(model, optimizer, rank, 2)
    model.flush()
    weight = model.module[0].weight
    with torch.no_grad():
        if rank == 1 and change == "in place":
            weight.mul_(0.5)
        elif rank == 1 and change == "replaced":
            weight.data = weight.detach().clone()
        elif rank == 1:
            model.module.load_state_dict(copy.deepcopy(model.module.state_dict()))
    with pytest.raises(weft.Error, match=r"\d\.\w+ was changed .*exclusive\(\)"):
        train(model, optimizer, rank, 2)
        model.flush()


def hidden_change_job(rank: int, _size: int) -> None:
    """A change of both ranks' shares by a rank that owns one of them, in torch's debug mode."""
    level = dist.get_debug_level()
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    try:
        model, optimizer = host()(mlp(rank), torch.optim.Adam)
        train(model, optimizer, rank, 3)
        with model.exclusive(), torch.no_grad():
            model.module[0].weight.mul_(0.5)
        train(model, optimizer, rank, 3)
        model.flush()
        dist.barrier()
        if rank == 1:
            model.module[0].weight.detach().numpy()[...] *= 0.5
        dist.barrier()
        with pytest.raises(weft.Error, match=r"0\.weight was changed .*exclusive\(\)"):
            train(model, optimizer, rank, 2)
            model.flush()
    finally:
        dist.set_debug_level(level)


def exclusive_job(rank: int, _size: int) -> None:
    """Changes that are made twice would show; and what only rank 0 loads."""

    def trained(setup: Setup) -> dict[str, torch.Tensor]:
        model, optimizer = setup(mlp(rank), torch.optim.Adam)
        for _ in range(3):
            train(model, optimizer, rank, 3)
            with model.exclusive(), torch.no_grad():
                for parameter in model.module.parameters():
                    parameter.mul_(0.9)
        with model.exclusive():
            if rank == 0 or not setup.overlapped:
                torch.manual_seed(7)
                values = {name: torch.randn_like(value) for name, value in model.module.state_dict().items()}
                model.module.load_state_dict(values)
        train(model, optimizer, rank, 3)
        return result(model, optimizer)

    setup = host()
    found = trained(setup)
    check_same(found, trained(Setup(overlapped=False, plan=setup.plan)))
    check_same_on_all_ranks(found)


def new_plan_job(rank: int, _size: int) -> None:
    def trained(setup: Setup) -> dict[str, torch.Tensor]:
        model, optimizer = setup(mlp(rank), torch.optim.Adam, fusion="automatic", plan=None, replan_after=4)
        train(model, optimizer, rank, 10)
        return result(model, optimizer)

    check_same(trained(host()), trained(Setup(overlapped=False)))


def unwrapping_job(rank: int, _size: int) -> None:
    model, optimizer = host()(mlp(rank))
    train(model, optimizer, rank, 2)
    net = model.unwrap()
    dist.barrier()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(rank)
    dist.barrier()
    assert all((parameter == rank).all() for parameter in net.parameters())


def forking_job(rank: int, _size: int) -> None:
    """The parameters can be read in a child of `fork`, as of a data loader."""
    model, optimizer = host()(mlp(rank))
    train(model, optimizer, rank, 2)
    model.flush()
    expected = model.module[0].weight.sum().item()
    child = os.fork()
    if child == 0:
        os._exit(model.module[0].weight.detach().numpy().sum() != pytest.approx(expected, rel=1e-5))
    assert os.waitpid(child, 0)[1] == 0
    train(model, optimizer, rank, 2)


def options_job(rank: int, _size: int) -> None:
    net = mlp(rank)
    with pytest.raises(weft.ArgumentError, match="parameters='gpu': expected 'own' or 'host'"):
        weft.torch.DataParallel(net, parameters="gpu")  # type: ignore[arg-type]
    with pytest.raises(weft.ArgumentError, match=r"parameters='host': averages by PowerSGD\(.* expected 'own'"):
        weft.torch.DataParallel(net, parameters="host", mode=weft.torch.modes.PowerSGD(rank=1))
    with pytest.raises(weft.ConfigError, match="parameters="):
        weft.torch.DataParallel(net, parameters=("own", "host")[rank])  # type: ignore[arg-type]
    model = weft.torch.DataParallel(nn.Linear(600, 600), parameters="host")
    optimizer = weft.torch.Overlapped(torch.optim.SGD(model.parameters(), lr=0.1), model)
    assert model._reducer.divided, "shard is automatic"
    model(torch.ones(1, 600)).sum().backward()
    optimizer.step()
    with pytest.raises(weft.UnsupportedError, match='parameters="host": the ranks are on 2 hosts'):
        check_one_host(SimpleNamespace(hosts=2))  # type: ignore[arg-type]
