"""Tests of functional collectives, torch.compile, profiler names and TORCH_DISTRIBUTED_DEBUG."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import Tensor, nn


@pytest.mark.parametrize("size", (1, 2, 3, 4))
def test_functional_collectives(workers, size: int) -> None:
    workers.run(size, functional_job)


@pytest.mark.parametrize("size", (1, 2, 4))
@pytest.mark.parametrize("compiler", ("eager", "aot_eager"))
def test_compiled_functional_collectives(workers, compiler: str, size: int) -> None:
    workers.run(size, compiled_job, compiler)


@pytest.mark.parametrize("compiler", ("eager", "aot_eager"))
def test_compiled_plain_collectives(workers, compiler: str) -> None:
    workers.run(2, compiled_plain_job, compiler)


@pytest.mark.parametrize("static_graph", (False, True))
def test_compiled_ddp(workers, static_graph: bool) -> None:
    workers.run(2, compiled_ddp_job, static_graph)


def test_profiler(workers) -> None:
    workers.run(2, profiler_job)


@pytest.mark.parametrize("size", (1, 2, 3))
def test_detailed_debugging(workers, size: int) -> None:
    workers.run(size, detail_job)


def test_detailed_debugging_finds_mismatches(workers) -> None:
    workers.run(2, mismatch_job)


def functional_job(rank: int, size: int) -> None:
    world = dist.group.WORLD
    mine = torch.arange(4.0) + rank
    total = sum(torch.arange(4.0) + other for other in range(size))
    assert torch.equal(functional.all_reduce(mine, "sum", world), total)
    assert torch.equal(functional.all_reduce(mine, "avg", world), total / size)
    assert torch.equal(functional.broadcast(mine, size - 1, world), torch.arange(4.0) + size - 1)
    gathered = functional.all_gather_tensor(mine, 0, world)
    assert torch.equal(gathered, torch.cat([torch.arange(4.0) + other for other in range(size)]))
    columns = functional.all_gather_tensor(mine.view(2, 2), 1, world)
    assert torch.equal(columns[:, 2 * rank : 2 * rank + 2], mine.view(2, 2))
    scattered = functional.reduce_scatter_tensor(gathered, "sum", 0, world)
    assert torch.equal(scattered, size * mine)
    exchanged = functional.all_to_all_single(torch.full((size,), float(rank)), None, None, world)
    assert torch.equal(exchanged, torch.arange(float(size)))
    for value in functional.all_reduce_coalesced([mine, 2 * mine], "sum", world):
        assert value[0] in (total[0], 2 * total[0])
    parts = functional.all_gather_into_tensor_coalesced([mine, -mine], world)
    assert torch.equal(torch.as_tensor(parts[1]), -gathered)
    parts = functional.reduce_scatter_tensor_coalesced([gathered, -gathered], "sum", [0, 0], world)
    assert torch.equal(torch.as_tensor(parts[1]), -size * mine)
    differentiable(rank, size)


def differentiable(rank: int, size: int) -> None:
    leaf = torch.full((3,), float(rank), requires_grad=True)
    weights = torch.arange(3.0 * size)
    (functional.all_gather_tensor_autograd(leaf, 0, dist.group.WORLD) * weights).sum().backward()
    assert torch.equal(leaf.grad, size * weights[3 * rank : 3 * rank + 3])


def compiled_job(rank: int, _size: int, compiler: str) -> None:
    def step(inputs: Tensor) -> Tensor:
        total = functional.all_reduce(inputs * 2, "sum", dist.group.WORLD)
        whole = functional.all_gather_tensor(total + 1, 0, dist.group.WORLD)
        return functional.reduce_scatter_tensor(whole, "sum", 0, dist.group.WORLD) - 1

    torch._dynamo.reset()
    compiled = torch.compile(step, backend=compiler, fullgraph=True)
    for number in range(3):
        inputs = torch.arange(6.0) + rank + number
        assert torch.equal(compiled(inputs), step(inputs))


def compiled_plain_job(rank: int, size: int, compiler: str) -> None:
    def step(inputs: Tensor) -> Tensor:
        total = inputs + 1
        dist.all_reduce(total)
        whole = torch.empty(size * total.numel())
        dist.all_gather_into_tensor(whole, total)
        return whole * 2

    torch._dynamo.reset()
    inputs = torch.arange(5.0) * (rank + 1)
    assert torch.equal(torch.compile(step, backend=compiler)(inputs), step(inputs))


def compiled_ddp_job(rank: int, size: int, static_graph: bool) -> None:
    torch._dynamo.reset()
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 2))
    model = nn.parallel.DistributedDataParallel(net, static_graph=static_graph)
    plain = nn.parallel.DistributedDataParallel(copy.deepcopy(net))
    compiled = torch.compile(model, backend="aot_eager")
    generator = torch.Generator().manual_seed(rank)
    for _ in range(3):  # DDP takes other ways in the second one, and with a static graph
        inputs = torch.randn(4, 6, generator=generator)
        for wrapper in (compiled, plain):
            wrapper.zero_grad()
            wrapper(inputs).square().mean().backward()
        for parameter, expected in zip(model.parameters(), plain.parameters(), strict=True):
            copies = [torch.empty_like(parameter.grad) for _ in range(size)]
            dist.all_gather(copies, parameter.grad)
            assert torch.equal(copies[0], copies[1])
            assert torch.allclose(parameter.grad, expected.grad)
            assert parameter.grad.abs().sum() > 0


PROFILED = {
    "c10d::allreduce_",
    "c10d::broadcast_",
    "c10d::_allgather_base_",
    "c10d::_reduce_scatter_base_",
    "c10d::alltoall_base_",
    "c10d::send",
    "c10d::recv_",
    "c10d::barrier",
}


def profiler_job(rank: int, size: int) -> None:
    mine, all_of_them = torch.ones(4), torch.empty(4 * size)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        dist.all_reduce(mine)
        dist.broadcast(mine, 0)
        dist.all_gather_into_tensor(all_of_them, mine)
        dist.reduce_scatter_tensor(mine, all_of_them)
        dist.all_to_all_single(torch.empty(4), mine)
        if rank == 0:
            dist.send(mine, 1)
            dist.recv(mine, 1)
        else:
            dist.recv(mine, 0)
            dist.send(mine, 0)
        dist.barrier()
    names = {event.key for event in profile.key_averages()}
    assert names >= PROFILED, f"not there: {PROFILED - names}; there: {sorted(names)}"


def detailed_group(size: int) -> dist.ProcessGroup:
    """A group as under TORCH_DISTRIBUTED_DEBUG=DETAIL, where torch checks every call with a group
    of Gloo's.
    """
    level = dist.get_debug_level()
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    try:
        return dist.new_group(list(range(size)))
    finally:
        dist.set_debug_level(level)


def detail_job(rank: int, size: int) -> None:
    group = detailed_group(size)
    tensor = torch.full((3,), float(rank))
    dist.all_reduce(tensor, group=group)
    assert tensor.tolist() == [sum(range(size))] * 3
    dist.all_reduce(tensor, group=group, async_op=True).wait()
    blocks = [torch.empty(2) for _ in range(size)]
    dist.all_gather(blocks, torch.full((2,), float(rank)), group=group)
    assert [block[0].item() for block in blocks] == list(range(size))
    objects: list[object] = [None] * size
    dist.all_gather_object(objects, {"rank": rank}, group=group)
    assert objects == [{"rank": other} for other in range(size)]
    model = nn.parallel.DistributedDataParallel(nn.Linear(3, 3), process_group=group)
    for _ in range(3):
        model(torch.randn(2, 3)).sum().backward()
    dist.barrier(group=group)
    dist.destroy_process_group(group)


def mismatch_job(rank: int, size: int) -> None:
    group = detailed_group(size)
    # torch's own check; before torch 2.14, which does not wrap groups written in Python, weft's.
    with pytest.raises(Exception, match=r"mismatch between collectives|made different calls"):
        dist.all_reduce(torch.ones(3 + rank), group=group)
