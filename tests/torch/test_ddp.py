"""Tests of DistributedDataParallel over weft against Gloo."""

from __future__ import annotations

import multiprocessing

import numpy as np
import pytest
import torch
import torch.distributed as dist
from models import MODELS, batch
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

STEPS = 20
ROUNDINGS_MAX = 20
DIFFERENCE_MAX = 1e-4


@pytest.mark.parametrize("size", (2, 3, 4))
@pytest.mark.parametrize("name", MODELS)
def test_same_as_gloo(workers, name: str, size: int) -> None:
    workers.run(size, compare_job, name)


@pytest.mark.parametrize(
    "options",
    [
        {"bucket_cap_mb": 0.01},
        {"find_unused_parameters": True},
        {"static_graph": True},
        {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.01},
    ],
    ids=lambda options: "-".join(options),
)
def test_options(workers, options: dict[str, object]) -> None:
    workers.run(2, options_job, options)


@pytest.mark.parametrize("static_graph", (False, True))
@pytest.mark.parametrize("hook", ("powersgd", "fp16", "bf16"))
def test_comm_hook(workers, hook: str, static_graph: bool) -> None:
    workers.run(3, hook_job, hook, static_graph)


def test_arrays_of_gradients_outlive_steps(workers) -> None:
    workers.run(2, gradient_arrays_job)


def test_loader_processes(workers) -> None:
    workers.run(2, loader_job)


def trained(name: str, rank: int, group: dist.ProcessGroup, **options: object) -> DistributedDataParallel:
    """A model after some steps; every rank has other data."""
    torch.manual_seed(7 + rank)  # DDP must take the parameters of rank 0
    model = DistributedDataParallel(MODELS[name](), process_group=group, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(STEPS):
        inputs, labels = batch(name, generator)
        optimizer.zero_grad()
        cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return model


def compare_job(rank: int, size: int, name: str) -> None:
    everybody = list(range(size))
    ours = trained(name, rank, dist.group.WORLD).module.state_dict()
    theirs = trained(name, rank, dist.new_group(everybody, backend="gloo")).module.state_dict()
    for key, value in theirs.items():
        check_close(key, ours[key], value, size)
    check_same_on_all_ranks(ours, size)


def check_close(key: str, ours: torch.Tensor, theirs: torch.Tensor, size: int) -> None:
    if size == 2 or not theirs.is_floating_point():
        assert torch.equal(ours, theirs), f"{key} differs by {(ours - theirs).abs().max()}"
        return
    bound = min(ROUNDINGS_MAX * torch.finfo(theirs.dtype).eps * theirs.abs().max().item(), DIFFERENCE_MAX)
    difference = (ours - theirs).abs().max().item()
    assert difference <= bound, f"{key} differs by {difference}, more than {bound}"


def check_same_on_all_ranks(parameters: dict[str, torch.Tensor], size: int) -> None:
    for key, value in parameters.items():
        if "running" in key:  # batch statistics are each rank's own until the next forward
            continue
        copies = [torch.empty_like(value) for _ in range(size)]
        dist.all_gather(copies, value)
        assert all(torch.equal(value, copy) for copy in copies), f"{key} differs between ranks"


def options_job(rank: int, _size: int, options: dict[str, object]) -> None:
    plain = trained("mlp", rank, dist.group.WORLD).module.state_dict()
    special = trained("mlp", rank, dist.group.WORLD, **options).module.state_dict()
    for key, value in plain.items():
        assert torch.equal(special[key], value), key


def hook_job(rank: int, size: int, hook: str, static_graph: bool) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    torch.manual_seed(1)
    # Several buckets: PowerSGD's callbacks start operations, which must start in the same order on
    # every rank.
    model = DistributedDataParallel(MODELS["mlp"](), bucket_cap_mb=0.02, static_graph=static_graph)
    if hook == "powersgd":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=3)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    else:
        model.register_comm_hook(None, getattr(default_hooks, f"{hook}_compress_hook"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(8):
        inputs, labels = batch("mlp", generator)
        optimizer.zero_grad()
        cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    check_same_on_all_ranks(model.module.state_dict(), size)


def gradient_arrays_job(rank: int, _size: int) -> None:
    """DDP's buckets stay torch's own memory: arrays that share it see every later gradient."""
    width = 600  # more than 1 MiB of gradients, which fill a bucket of DDP's alone
    net = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.Linear(width, width))
    model = DistributedDataParallel(net, gradient_as_bucket_view=True)
    seen: list[tuple[int, np.ndarray]] = []
    for step in range(5):
        model.zero_grad(set_to_none=False)
        loss = model(torch.full((2, width), float(rank + step))).square().mean()
        if step > 0:  # DDP has laid out its buckets for good in the second forward
            seen = [(parameter.grad.data_ptr(), parameter.grad.numpy()) for parameter in net.parameters()]
        loss.backward()
        for (address, array), parameter in zip(seen, net.parameters(), strict=bool(seen)):
            assert parameter.grad.data_ptr() == address
            assert not parameter.grad.is_shared()
            assert np.array_equal(array, parameter.grad.numpy())
            assert array.any()
    check_same_on_all_ranks({str(at): parameter.grad for at, parameter in enumerate(net.parameters())}, 2)


def loader_job(_rank: int, size: int) -> None:
    """Data is loaded by forked processes, which leave the group alone; also when they end while it
    works.
    """
    multiprocessing.current_process()._config["daemon"] = False  # daemons may not have children
    data = torch.utils.data.TensorDataset(torch.arange(64.0).view(64, 1))
    sampler = torch.utils.data.DistributedSampler(data, shuffle=False)
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    for _ in range(2):
        loader = torch.utils.data.DataLoader(
            data, batch_size=8, sampler=sampler, num_workers=2, multiprocessing_context="fork"
        )
        seen = 0.0
        for (inputs,) in loader:
            model(inputs).sum().backward()
            total = inputs.sum()
            dist.all_reduce(total)
            seen += total.item()
        assert seen == sum(range(64))
    check_same_on_all_ranks(model.module.state_dict(), size)
