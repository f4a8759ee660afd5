"""Tests of DDP options and extensions, on weft and on Gloo from the same seeds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

FEATURES, SAMPLES = 12, 6
SAME = {"rtol": 1e-5, "atol": 1e-6}
SAME_HALF = {"rtol": 0.05, "atol": 0.005}  # gradients are rounded to 16 bits at each partial sum


class Branches(nn.Module):
    """A network of which an input uses one branch; the other's parameters get no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.head = nn.Linear(FEATURES, 9), nn.Linear(FEATURES, 9), nn.Linear(9, 3)

    def forward(self, inputs: Tensor, branch: int) -> Tensor:
        return self.head(torch.tanh((self.left, self.right)[branch](inputs)))


@pytest.mark.parametrize("size", (1, 2, 3, 4))
def test_unused_parameters(workers, size: int) -> None:
    workers.run(size, compared_job, "unused_parameters")


@pytest.mark.parametrize("size", (1, 4))
def test_static_graph_with_bucket_views(workers, size: int) -> None:
    workers.run(size, compared_job, "static_graph")


@pytest.mark.parametrize("size", (1, 2, 4))
def test_no_sync(workers, size: int) -> None:
    workers.run(size, compared_job, "no_sync")


@pytest.mark.parametrize("scenario", ("join", "join_averaging_active_ranks"))
@pytest.mark.parametrize("size", (2, 3, 4))
def test_join_with_uneven_inputs(workers, size: int, scenario: str) -> None:
    workers.run(size, compared_job, scenario)


@pytest.mark.parametrize("size", (2, 4))
@pytest.mark.parametrize("hook", ("fp16_compress", "bf16_compress"))
def test_compression_hook(workers, hook: str, size: int) -> None:
    workers.run(size, compared_job, hook)


@pytest.mark.parametrize("size", (1, 3))
def test_power_sgd(workers, size: int) -> None:
    workers.run(size, compared_job, "power_sgd")


@pytest.mark.parametrize("size", (2, 4))
def test_post_local_sgd(workers, size: int) -> None:
    workers.run(size, compared_job, "post_local_sgd")


@pytest.mark.parametrize("size", (1, 2))
def test_autocast(workers, size: int) -> None:
    workers.run(size, compared_job, "autocast")


@pytest.mark.parametrize("size", (2, 3))
def test_zero_redundancy_optimizer(workers, size: int) -> None:
    workers.run(size, compared_job, "zero_redundancy")


@pytest.mark.parametrize("size", (1, 3, 4))
def test_distributed_sampler(workers, size: int) -> None:
    seen = workers.run(size, sampler_job)
    assert {sample for part in seen for sample in part} == set(range(22))
    assert len({len(part) for part in seen}) == 1


def test_sync_batch_norm_is_refused_by_torch(workers) -> None:
    workers.run(2, sync_batch_norm_job)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="with an accelerator torch gets further")
def test_ddp_mixed_precision_is_refused_by_torch(workers) -> None:
    workers.run(2, mixed_precision_job)


def compared_job(rank: int, size: int, scenario: str) -> None:
    """Trains over weft and over Gloo: the same parameters on all ranks, and as Gloo's up to
    rounding.
    """
    everybody = list(range(size))
    ours = SCENARIOS[scenario](rank, dist.group.WORLD)
    theirs = SCENARIOS[scenario](rank, dist.new_group(everybody, backend="gloo"))
    for (key, value), expected in zip(ours.items(), theirs.values(), strict=True):
        bounds = SAME_HALF if "compress" in scenario else SAME
        torch.testing.assert_close(value, expected, msg=lambda text, key=key: f"{key}: {text}", **bounds)
        copies = [torch.empty_like(value) for _ in range(size)]
        dist.all_gather(copies, value)
        assert all(torch.equal(value, copy) for copy in copies), f"{key} differs between ranks"


def batches(rank: int, count: int) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(50 + rank)
    for _ in range(count):
        yield torch.randn(SAMPLES, FEATURES, generator=generator), torch.randn(SAMPLES, 3, generator=generator)


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, 3))


def wrapped(group: dist.ProcessGroup, module: nn.Module | None = None, **options: object) -> DistributedDataParallel:
    return DistributedDataParallel(network() if module is None else module, process_group=group, **options)


def fit(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: Iterator[tuple[Tensor, Tensor]],
    forward: Callable[[Tensor], Tensor] | None = None,
) -> dict[str, Tensor]:
    for inputs, labels in data:
        optimizer.zero_grad()
        nn.functional.mse_loss((forward or model)(inputs), labels).backward()
        optimizer.step()
    return {key: value.detach().clone() for key, value in model.module.state_dict().items()}


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def unused_parameters(rank: int, group: dist.ProcessGroup) -> dict[str, Tensor]:
    torch.manual_seed(3)
    model = wrapped(group, Branches(), find_unused_parameters=True)
    turn = iter(range(100))
    # A branch that no rank uses, one that some use, and one that all use.
    return fit(model, sgd(model), batches(rank, 4), lambda inputs: model(inputs, (next(turn) + rank // 2) % 2))


def static_graph(rank: int, group: dist.ProcessGroup) -> dict[str, Tensor]:
    model = wrapped(group, static_graph=True, gradient_as_bucket_view=True, bucket_cap_mb=0.0005)
    return fit(model, sgd(model), batches(rank, 4))


def no_sync(rank: int, group: dist.ProcessGroup) -> dict[str, Tensor]:
    model = wrapped(group)
    optimizer = sgd(model)
    for number, (inputs, labels) in enumerate(batches(rank, 6)):
        complete = number % 3 == 2
        with contextlib.nullcontext() if complete else model.no_sync():
            nn.functional.mse_loss(model(inputs), labels).backward()
        if complete:
            optimizer.step()
            optimizer.zero_grad()
    return dict(model.module.state_dict())


def join(divides_by_all_ranks: bool) -> Callable[[int, dist.ProcessGroup], dict[str, Tensor]]:
    def train(rank: int, group: dist.ProcessGroup) -> dict[str, Tensor]:
        model = wrapped(group)
        with model.join(divide_by_initial_world_size=divides_by_all_ranks):
            return fit(model, sgd(model), batches(rank, 2 + rank)) and dict(model.module.state_dict())

    return train


def compression(name: str) -> Callable[[int, dist.ProcessGroup], dict[str, Tensor]]:
    def train(rank: int, group: dist.ProcessGroup) -> dict[str, Tensor]:
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        model = wrapped(group)
        model.register_comm_hook(group, getattr(default_hooks, name))
        return fit(model, sgd(model), batches(rank, 2))

    return train


def power_sgd(rank: int, group: dist.ProcessGroup) -> dict[str, Tensor]:
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    # One bucket, for Gloo: it depends on chance in which order the callbacks of several buckets
    # start operations.
    model = wrapped(group)
    state = powerSGD_hook.PowerSGDState(group, matrix_approximation_rank=2, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return fit(model, sgd(model), batches(rank, 5))


def post_local_sgd(rank: int, group: dist.ProcessGroup) -> dict[str, Tensor]:
    from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    backend = dist.get_backend(group)
    alone, _ = dist.new_subgroups_by_enumeration([[r] for r in range(dist.get_world_size())], backend=backend)
    model = wrapped(group)
    state = post_localSGD_hook.PostLocalSGDState(group, alone, start_localSGD_iter=2)
    model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
    averager = PeriodicModelAverager(period=2, warmup_steps=2, process_group=group)
    return fit(model, PostLocalSGDOptimizer(sgd(model), averager), batches(rank, 7))


def autocast(rank: int, group: dist.ProcessGroup) -> dict[str, Tensor]:
    model = wrapped(group)

    def forward(inputs: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(inputs).float()

    return fit(model, sgd(model), batches(rank, 3), forward)


def zero_redundancy(rank: int, group: dist.ProcessGroup) -> dict[str, Tensor]:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = wrapped(group)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, process_group=group, lr=0.05)
    parameters = fit(model, optimizer, batches(rank, 4))
    optimizer.consolidate_state_dict(to=0)
    if rank == 0:
        assert len(optimizer.state_dict()["state"]) == len(parameters)
    return parameters


SCENARIOS = {
    "unused_parameters": unused_parameters,
    "static_graph": static_graph,
    "no_sync": no_sync,
    "join": join(True),
    "join_averaging_active_ranks": join(False),
    "fp16_compress": compression("fp16_compress_hook"),
    "bf16_compress": compression("bf16_compress_hook"),
    "power_sgd": power_sgd,
    "post_local_sgd": post_local_sgd,
    "autocast": autocast,
    "zero_redundancy": zero_redundancy,
}


def sampler_job(rank: int, size: int) -> list[int]:
    data = TensorDataset(torch.randn(22, FEATURES), torch.arange(22))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    assert (sampler.num_replicas, sampler.rank) == (size, rank)
    model = wrapped(dist.group.WORLD)
    seen: list[int] = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        seen = []
        for inputs, labels in loader:
            model(inputs).sum().backward()
            seen += labels.tolist()
    return seen


def sync_batch_norm_job(_rank: int, _size: int) -> None:
    model = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    with pytest.raises(ValueError, match="SyncBatchNorm expected input tensor to be on GPU"):
        model(torch.randn(3, 4))
    with pytest.raises(ValueError, match="SyncBatchNorm layers only work with GPU modules"):
        wrapped(dist.group.WORLD, model)
    torch.testing.assert_close(model.eval()(torch.ones(2, 4))[0], model(torch.ones(1, 4))[0])


def mixed_precision_job(_rank: int, _size: int) -> None:
    from torch.nn.parallel.distributed import _MixedPrecision

    with pytest.raises(RuntimeError):  # it copies parameters on an accelerator's stream
        wrapped(dist.group.WORLD, mixed_precision=_MixedPrecision(torch.bfloat16, torch.bfloat16))
