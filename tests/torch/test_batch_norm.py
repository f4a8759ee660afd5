"""Tests of `weft.torch.SyncBatchNorm` against torch's BatchNorm on all samples in one process."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from weft.torch import SyncBatchNorm, convert_sync_batchnorm

CHANNELS, STEPS = 5, 3
TRAILING = ((), (7,), (4, 3), (3, 2, 4))
LAYERS = (nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


@pytest.mark.parametrize("size", (1, 2, 3, 4))
def test_same_as_one_process(workers, size: int) -> None:
    workers.run(size, same_job)


@pytest.mark.parametrize("empty", (False, True))
def test_batches_of_different_sizes(workers, empty: bool) -> None:
    workers.run(3, different_sizes_job, empty)


@pytest.mark.parametrize("dtype", (torch.float64, torch.bfloat16, torch.float16))
def test_types(workers, dtype: torch.dtype) -> None:
    workers.run(2, types_job, dtype)


def test_large_mean(workers) -> None:
    workers.run(2, large_mean_job)


def test_evaluation(workers) -> None:
    workers.run(2, evaluation_job)


def test_groups(workers) -> None:
    workers.run(4, groups_job)


def test_refusals(workers) -> None:
    workers.run(2, refusals_job)


def test_conversion(workers) -> None:
    workers.run(2, conversion_job)


def test_training(workers) -> None:
    workers.run(2, training_job)


def samples(rank: int, count: int, trailing: tuple[int, ...] = (), step: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(count, CHANNELS, *trailing, generator=generator) * (rank + 1) + rank


def compare(rank: int, counts: list[int], layer: nn.Module, trailing: tuple[int, ...], **tolerance: float) -> None:
    """Trains the layer on all ranks' samples here, and its conversion on this rank's."""
    if layer.affine:
        with torch.no_grad():
            layer.weight.copy_(torch.linspace(0.5, 2, CHANNELS))
            layer.bias.copy_(torch.linspace(-1, 1, CHANNELS))
    dtype = next(layer.parameters()).dtype if layer.affine else torch.float32
    synced = convert_sync_batchnorm(copy.deepcopy(layer))
    assert isinstance(synced, SyncBatchNorm)
    for step in range(STEPS):
        parts = [samples(peer, count, trailing, step).to(dtype) for peer, count in enumerate(counts)]
        whole, mine = torch.cat(parts).requires_grad_(), parts[rank].clone().requires_grad_()
        here = slice(sum(counts[:rank]), sum(counts[: rank + 1]))
        expected, got = layer(whole), synced(mine)
        assert got.dtype == expected.dtype
        torch.testing.assert_close(got, expected[here], **tolerance)
        expected.sin().sum().backward()
        got.sin().sum().backward()
        torch.testing.assert_close(mine.grad, whole.grad[here], **tolerance)
        for parameter, other in zip(synced.parameters(), layer.parameters(), strict=True):
            dist.all_reduce(parameter.grad)
            torch.testing.assert_close(parameter.grad, other.grad, **tolerance)
            parameter.grad = other.grad = None
        for buffer, other in zip(synced.buffers(), layer.buffers(), strict=True):
            torch.testing.assert_close(buffer, other, **tolerance)


def same_job(rank: int, size: int) -> None:
    for layer, trailing in zip(LAYERS, TRAILING, strict=True):
        for options in ({}, {"affine": False}, {"momentum": None}, {"track_running_stats": False}, {"eps": 0.1}):
            compare(rank, [4] * size, layer(CHANNELS, **options), trailing, rtol=1e-4, atol=1e-5)


def different_sizes_job(rank: int, size: int, empty: bool) -> None:
    counts = [0 if empty and peer == 1 else 2 * peer + 1 for peer in range(size)]
    for layer, trailing in zip(LAYERS, TRAILING, strict=True):
        compare(rank, counts, layer(CHANNELS), trailing, rtol=1e-4, atol=1e-5)


def types_job(rank: int, size: int, dtype: torch.dtype) -> None:
    close = 1e-10 if dtype == torch.float64 else 3e-2
    compare(rank, [6] * size, nn.BatchNorm2d(CHANNELS, dtype=dtype), (4, 3), rtol=close, atol=close)


def large_mean_job(rank: int, size: int) -> None:
    """The variance is small next to the mean: sums of squares in float32 would lose it."""
    layer = SyncBatchNorm(CHANNELS, affine=False)
    mine = samples(0, 40) / 100 + 1000 + rank / 100
    whole = torch.cat([samples(0, 40) / 100 + 1000 + peer / 100 for peer in range(size)]).double()
    expected = nn.functional.batch_norm(whole, None, None, training=True)[rank * 40 : rank * 40 + 40]
    torch.testing.assert_close(layer(mine).double(), expected, rtol=0.02, atol=0.02)


def evaluation_job(rank: int, _size: int) -> None:
    layer = nn.BatchNorm1d(CHANNELS)
    layer(samples(5, 9))
    synced = convert_sync_batchnorm(copy.deepcopy(layer)).eval()
    if rank == 0:  # alone: nothing is communicated
        torch.testing.assert_close(synced(samples(0, 4)), layer.eval()(samples(0, 4)))
    untracked = SyncBatchNorm(CHANNELS, track_running_stats=False).eval()
    torch.testing.assert_close(untracked(samples(rank, 4)), nn.BatchNorm1d(CHANNELS)(samples(rank, 4)))


def groups_job(rank: int, _size: int) -> None:
    groups = [dist.new_group([0, 3]), dist.new_group([1, 2])]
    mine, peers = (groups[0], [0, 3]) if rank in (0, 3) else (groups[1], [1, 2])
    layer = SyncBatchNorm(CHANNELS, process_group=mine)
    expected = nn.BatchNorm1d(CHANNELS)(torch.cat([samples(peer, 4) for peer in peers]))
    place = 4 * peers.index(rank)
    torch.testing.assert_close(layer(samples(rank, 4)), expected[place : place + 4], rtol=1e-4, atol=1e-5)


def refusals_job(rank: int, _size: int) -> None:
    layer = SyncBatchNorm(CHANNELS)
    with pytest.raises(ValueError, match="the input has 1 dimensions: expected at least 2"):
        layer(torch.ones(CHANNELS))
    with pytest.raises(ValueError, match="all ranks together have 1 values per channel: expected 2 or more"):
        layer(torch.ones(rank, CHANNELS))
    assert layer(torch.ones(1, CHANNELS)).shape == (1, CHANNELS)


def conversion_job(_rank: int, _size: int) -> None:
    group = dist.new_group([0, 1])
    model = nn.Sequential(
        nn.Linear(3, 4),
        nn.Sequential(nn.BatchNorm1d(4, momentum=None), nn.InstanceNorm1d(4)),
        nn.SyncBatchNorm(4, eps=0.5, process_group=group),
        nn.BatchNorm3d(4, affine=False, track_running_stats=False),
    )
    keys, parameters = list(model.state_dict()), list(model.parameters())
    model[2].eval()
    converted = convert_sync_batchnorm(model)
    assert converted is model
    kinds = [type(module) for module in (model[1][0], model[1][1], model[2], model[3])]
    assert kinds == [SyncBatchNorm, nn.InstanceNorm1d, SyncBatchNorm, SyncBatchNorm]
    assert list(model.state_dict()) == keys
    assert all(new is old for new, old in zip(model.parameters(), parameters, strict=True))
    assert model[1][0].momentum is None
    assert model[2].eps == 0.5
    assert model[2].process_group is group
    assert not model[2].training
    assert model[3].weight is None
    assert convert_sync_batchnorm(model[2]) is model[2]


def training_job(rank: int, size: int) -> None:
    """A whole model, with DDP, against one process with all samples."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(CHANNELS, CHANNELS), nn.BatchNorm1d(CHANNELS), nn.ReLU(), nn.Linear(CHANNELS, 2))
    parallel = DistributedDataParallel(convert_sync_batchnorm(copy.deepcopy(model)))
    optimizers = [torch.optim.SGD(network.parameters(), lr=0.1) for network in (model, parallel)]
    for step in range(STEPS):
        parts = [samples(peer, 4, step=step) for peer in range(size)]
        for network, optimizer, inputs in zip(
            (model, parallel), optimizers, (torch.cat(parts), parts[rank]), strict=True
        ):
            optimizer.zero_grad()
            network(inputs).square().mean().backward()
            optimizer.step()
    for (name, value), other in zip(parallel.module.state_dict().items(), model.state_dict().values(), strict=True):
        torch.testing.assert_close(value, other, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")
