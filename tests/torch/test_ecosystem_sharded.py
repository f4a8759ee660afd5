"""Sharded training: FSDP, DTensor, device meshes, tensor and pipeline parallelism, checkpoints."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

import weft.torch

FEATURES, STEPS = 8, 3
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.mark.parametrize("size", (1, 2, 3, 4))
def test_fully_shard(workers, size: int) -> None:
    workers.run(size, fully_shard_job)


def test_fully_shard_mixed_precision(workers) -> None:
    workers.run(2, fully_shard_mixed_job)


@pytest.mark.parametrize("mixed", (False, True))
@pytest.mark.parametrize("size", (2, 3))
def test_fully_shard_in_symmetric_memory(workers, size: int, mixed: bool) -> None:
    workers.run(size, symmetric_fully_shard_job, mixed)


def test_hybrid_shard_in_symmetric_memory(workers) -> None:
    workers.run(4, symmetric_hybrid_shard_job)


def test_hybrid_shard(workers) -> None:
    workers.run(4, hybrid_shard_job)


@pytest.mark.parametrize("size", (2, 3))
@pytest.mark.parametrize("strategy", ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"))
def test_fsdp1(workers, strategy: str, size: int) -> None:
    workers.run(size, fsdp1_job, strategy)


@pytest.mark.parametrize("size", (1, 2, 3, 4))
def test_dtensor(workers, size: int) -> None:
    workers.run(size, dtensor_job)


def test_device_mesh(workers) -> None:
    workers.run(4, mesh_job)


@pytest.mark.parametrize("size", (1, 2, 4))
def test_tensor_parallel(workers, size: int) -> None:
    workers.run(size, tensor_parallel_job)


@pytest.mark.parametrize("size", (2, 3, 4))
@pytest.mark.parametrize("schedule", ("ScheduleGPipe", "Schedule1F1B"))
def test_pipeline(workers, schedule: str, size: int) -> None:
    workers.run(size, pipeline_job, schedule)


@pytest.mark.parametrize("size", (1, 3))
def test_checkpoint(workers, size: int, tmp_path: Path) -> None:
    workers.run(size, save_job, str(tmp_path))
    workers.run(size + 1, load_job, str(tmp_path))  # on another number of ranks


def test_asynchronous_checkpoint(workers, tmp_path: Path) -> None:
    workers.run(2, asynchronous_save_job, str(tmp_path))
    workers.run(2, load_job, str(tmp_path))


def network() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))


def data(rank: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(6, FEATURES, generator=generator), torch.randn(6, 4, generator=generator)


def fit(model: nn.Module, inputs: Tensor, labels: Tensor) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(STEPS):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), labels).backward()
        optimizer.step()


def alone(size: int) -> nn.Module:
    """The network trained by one process on all ranks' samples."""
    model = network()
    parts = [data(rank) for rank in range(size)]
    fit(model, torch.cat([inputs for inputs, _ in parts]), torch.cat([labels for _, labels in parts]))
    return model


def check_full(model: nn.Module, expected: nn.Module) -> None:
    for (name, sharded), whole in zip(model.named_parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(sharded.full_tensor(), whole, msg=lambda text, name=name: f"{name}: {text}", **CLOSE)


def sharded_network(size: int, **options: object) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (size,))
    model = network()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def fully_shard_job(rank: int, size: int) -> None:
    model = sharded_network(size)
    fit(model, *data(rank))
    check_full(model, alone(size))


def fully_shard_mixed_job(rank: int, size: int) -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy

    model = sharded_network(size, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    before = [p.full_tensor().clone() for p in model.parameters()]
    fit(model, *(part.bfloat16() for part in data(rank)))
    for parameter, old in zip(model.parameters(), before, strict=True):
        value = parameter.full_tensor()
        assert value.dtype == torch.float32
        assert value.isfinite().all()
        assert not torch.equal(value, old)


def operations_of(group: dist.ProcessGroup) -> tuple[int, int]:
    """How many operations of the group ran on symmetric memory as such, and how many there were in
    all.
    """
    return weft.torch.symmetric_operations(group), group._get_sequence_number_for_group()


def wide_network() -> nn.Module:
    """Layers of which some have one size, and all are too large for the path of small messages."""
    torch.manual_seed(8)
    layers = [nn.Linear(FEATURES, 512)] + [nn.Linear(512, 512) for _ in range(6)] + [nn.Linear(512, 32)]
    return nn.Sequential(*layers, nn.Linear(32, 4))


def train_wide(rank: int, symmetric: bool, mesh: DeviceMesh, **options: object) -> tuple[list[Tensor], nn.Module]:
    """Losses of some steps, of which the last accumulates the gradients of two passes; and the
    model.
    """
    from torch.distributed.fsdp import FSDPModule, fully_shard

    model = wide_network()
    for layer in list(model)[:-2]:
        fully_shard(layer, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    if symmetric:
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_allocate_memory_from_process_group_for_comm(True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, labels = data(rank)
    losses = []
    for step in range(STEPS + 1):
        optimizer.zero_grad()
        for _ in range(2 if step == STEPS else 1):
            loss = nn.functional.mse_loss(model(inputs).float(), labels)
            loss.backward()
            losses.append(loss.detach())
        optimizer.step()
    return losses, model


def check_same_training(rank: int, mesh: DeviceMesh, shards: dist.ProcessGroup, **options: object) -> None:
    """Trains with and without symmetric memory: every operation takes its path, and all results
    have the same bits.
    """
    losses, model = train_wide(rank, False, mesh, **options)
    before, started = operations_of(shards)
    assert before == 0
    assert started > 0
    symmetric_losses, symmetric_model = train_wide(rank, True, mesh, **options)
    symmetric, everything = operations_of(shards)
    assert symmetric == everything - started > 0
    assert torch.equal(torch.stack(losses), torch.stack(symmetric_losses))
    for parameter, other in zip(model.parameters(), symmetric_model.parameters(), strict=True):
        assert torch.equal(parameter.full_tensor(), other.full_tensor())


def symmetric_fully_shard_job(rank: int, size: int, mixed: bool) -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy

    mesh = init_device_mesh("cpu", (size,))
    options = {"mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32)} if mixed else {}
    check_same_training(rank, mesh, mesh.get_group(), **options)


def symmetric_hybrid_shard_job(rank: int, _size: int) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    check_same_training(rank, mesh, mesh.get_group("shard"))


def hybrid_shard_job(rank: int, size: int) -> None:
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(network(), mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))
    fit(model, *data(rank))
    check_full(model, alone(size))


def fsdp1_job(rank: int, size: int, strategy: str) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

    model = FullyShardedDataParallel(
        network(), device_id=torch.device("cpu"), sharding_strategy=ShardingStrategy[strategy], use_orig_params=True
    )
    fit(model, *data(rank))
    with FullyShardedDataParallel.summon_full_params(model):
        for parameter, expected in zip(model.parameters(), alone(size).parameters(), strict=True):
            torch.testing.assert_close(parameter, expected, **CLOSE)


def dtensor_job(_rank: int, size: int) -> None:
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (size,))
    whole = torch.arange(7 * 5, dtype=torch.float32).view(7, 5)
    other = torch.arange(5 * 6, dtype=torch.float32).view(5, 6)
    rows, columns = distribute_tensor(whole, mesh, [Shard(0)]), distribute_tensor(whole, mesh, [Shard(1)])
    assert torch.equal(rows.full_tensor(), whole)
    assert torch.equal(rows.redistribute(mesh, [Shard(1)]).to_local(), columns.to_local())
    product = columns @ distribute_tensor(other, mesh, [Shard(0)])
    if size > 1:
        assert product.placements == (Partial(),)
    assert torch.equal(product.full_tensor(), whole @ other)
    assert torch.equal(product.redistribute(mesh, [Shard(0)]).full_tensor(), whole @ other)
    assert torch.equal(rows.sum().full_tensor(), whole.sum())
    assert torch.equal(distribute_tensor(whole, mesh, [Replicate()]).to_local(), whole)


def mesh_job(rank: int, _size: int) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
    for name, total in (("outer", 2 * (rank % 2) + 2), ("inner", 4 * (rank // 2) + 1)):
        group = mesh.get_group(name)
        assert dist.get_backend(group) == "weft"
        tensor = torch.tensor([rank])
        dist.all_reduce(tensor, group=group)
        assert tensor.item() == total
    assert list(mesh.get_coordinate()) == [rank // 2, rank % 2]
    flat = mesh["outer", "inner"]._flatten()
    tensor = torch.tensor([rank])
    dist.all_reduce(tensor, group=flat.get_group())
    assert tensor.item() == 6


class Feedforward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(FEATURES, 16), nn.Linear(16, FEATURES)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(inputs)))


def tensor_parallel_job(_rank: int, size: int) -> None:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.manual_seed(2)
    plain = Feedforward()
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    parallel = parallelize_module(copy.deepcopy(plain), init_device_mesh("cpu", (size,)), plan)
    inputs, labels = torch.randn(5, FEATURES), torch.randn(5, FEATURES)
    fit(plain, inputs, labels)
    fit(parallel, inputs, labels)
    check_full(parallel, plain)


def pipeline_job(rank: int, size: int, schedule: str) -> None:
    from torch.distributed import pipelining

    torch.manual_seed(4)
    layers = [nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.Tanh()) for _ in range(size)]
    whole = copy.deepcopy(nn.Sequential(*layers))
    generator = torch.Generator().manual_seed(9)
    inputs, labels = torch.randn(8, FEATURES, generator=generator), torch.randn(8, FEATURES, generator=generator)
    stage = pipelining.PipelineStage(layers[rank], rank, size, torch.device("cpu"))
    run = getattr(pipelining, schedule)(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
    for _ in range(2):
        layers[rank].zero_grad()
        if rank == 0:
            run.step(inputs)
        elif rank == size - 1:
            run.step(target=labels)
        else:
            run.step()
    nn.functional.mse_loss(whole(inputs), labels).backward()
    for parameter, expected in zip(layers[rank].parameters(), whole[rank].parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, expected.grad, **CLOSE)


def checkpointed(size: int) -> dict[str, object]:
    from torch.distributed.checkpoint.state_dict import get_state_dict

    model = sharded_network(size)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    inputs, labels = data(0)
    nn.functional.mse_loss(model(inputs), labels).backward()
    optimizer.step()
    state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": state, "optimizer": optimizer_state}


def save_job(_rank: int, size: int, directory: str) -> None:
    from torch.distributed import checkpoint

    checkpoint.save(checkpointed(size), checkpoint_id=directory)


def asynchronous_save_job(_rank: int, size: int, directory: str) -> None:
    from torch.distributed import checkpoint

    group = dist.new_group(backend="weft")
    checkpoint.async_save(checkpointed(size), checkpoint_id=directory, process_group=group).result()


def load_job(_rank: int, size: int, directory: str) -> None:
    from torch.distributed import checkpoint

    expected = checkpointed(size)
    state = copy.deepcopy(expected)
    for value in state["model"].values():
        value.to_local().zero_()
    checkpoint.load(state, checkpoint_id=directory)
    for key, value in expected["model"].items():
        torch.testing.assert_close(state["model"][key].full_tensor(), value.full_tensor(), **CLOSE)
