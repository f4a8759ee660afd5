"""Tests of reductions of sparse, complex and boolean tensors."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import weft

SIZES = (1, 2, 3, 4)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("job", ["sparse_job", "complex_job", "bool_job"])
def test_reduction(workers, size: int, job: str) -> None:
    workers.run(size, globals()[job])


@pytest.mark.parametrize("size", (1, 2, 3))
def test_same_as_gloo(workers, size: int) -> None:
    workers.run(size, gloo_job)


def test_sparse_gradients(workers) -> None:
    workers.run(3, gradients_job)


def test_different_shapes(workers) -> None:
    workers.run(2, shapes_job)


def sparse(rank: int, values: int, dtype: torch.dtype = torch.float32, tail: tuple[int, ...] = ()) -> torch.Tensor:
    """A tensor with a different number of values on every rank, some of them at the same place
    twice.
    """
    indices = torch.stack([torch.arange(values) * (rank + 1) % 7, torch.arange(values) % 3])
    numbers = (torch.arange(values) + rank + 1).to(dtype).reshape(-1, *(1 for _ in tail)).expand(-1, *tail)
    return torch.sparse_coo_tensor(indices, numbers.contiguous(), (7, 3, *tail))


def sparse_job(rank: int, size: int) -> None:
    for dtype in (torch.float32, torch.float64, torch.int64):
        for tail in ((), (2, 3)):
            expected = sum(sparse(r, 3 * r, dtype, tail).to_dense() for r in range(size))
            for async_op in (False, True):
                tensor = sparse(rank, 3 * rank, dtype, tail)  # rank 0 has no values
                work = dist.all_reduce(tensor, async_op=async_op)
                if async_op:
                    assert torch.equal(work.get_future().wait()[0].to_dense(), expected)
                assert tensor.is_sparse
                assert torch.equal(tensor.to_dense(), expected)
    tensor = sparse(rank, 5)
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    torch.testing.assert_close(tensor.to_dense(), sum(sparse(r, 5).to_dense() for r in range(size)) / size)
    with pytest.raises(weft.UnsupportedError, match="sparse tensors by max"):
        dist.all_reduce(sparse(rank, 5), dist.ReduceOp.MAX)


def gloo_job(rank: int, size: int) -> None:
    gloo = dist.new_group(list(range(size)), backend="gloo")
    ours, theirs = sparse(rank, 4), sparse(rank, 4)
    dist.all_reduce(ours)
    dist.all_reduce(theirs, group=gloo)
    assert torch.equal(ours.coalesce().indices(), theirs.coalesce().indices())
    assert torch.equal(ours.coalesce().values(), theirs.coalesce().values())
    dist.destroy_process_group(gloo)


def complex_job(rank: int, size: int) -> None:
    def numbers(r: int) -> torch.Tensor:
        return torch.complex(torch.arange(6.0) + r, torch.arange(6.0) * (r - 1)).view(2, 3)

    total = sum(numbers(r) for r in range(size))
    for tensor in (numbers(rank), numbers(rank).t().contiguous().t()):
        dist.all_reduce(tensor)
        assert torch.equal(tensor, total)
    group = dist.group.WORLD
    tensor = numbers(rank)
    group.allreduce([tensor], dist.AllreduceOptions()).wait()  # the group itself, which does not split them
    assert torch.equal(tensor, total)
    with pytest.raises(weft.UnsupportedError, match="complex elements by max"):
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MAX
        group.allreduce([tensor], options).wait()
    for root in range(size):
        tensor = numbers(rank)
        dist.broadcast(tensor, root)
        assert torch.equal(tensor, numbers(root))
    blocks = torch.stack([numbers(rank + r) for r in range(size)])
    output = torch.empty(2, 3, dtype=torch.complex64)
    dist.reduce_scatter_tensor(output, blocks)
    assert torch.equal(output, sum(numbers(r + rank) for r in range(size)))
    whole = torch.empty(2 * size, 3, dtype=torch.complex64)
    dist.all_gather_into_tensor(whole, numbers(rank))
    assert torch.equal(whole, torch.cat([numbers(r) for r in range(size)]))


def bool_job(rank: int, size: int) -> None:
    flags = [torch.tensor([r == 0, False, True, r % 2 == 0]) for r in range(size)]
    everybody = torch.stack(flags)
    for op, expected in (
        (dist.ReduceOp.SUM, everybody.any(0)),
        (dist.ReduceOp.MAX, everybody.any(0)),
        (dist.ReduceOp.BOR, everybody.any(0)),
        (dist.ReduceOp.PRODUCT, everybody.all(0)),
        (dist.ReduceOp.MIN, everybody.all(0)),
        (dist.ReduceOp.BAND, everybody.all(0)),
        (dist.ReduceOp.BXOR, everybody.sum(0) % 2 == 1),
    ):
        tensor = flags[rank].clone()
        dist.all_reduce(tensor, op)
        assert torch.equal(tensor, expected), op


def gradients_job(rank: int, _size: int) -> None:
    def trained(group: dist.ProcessGroup) -> torch.Tensor:
        torch.manual_seed(3)
        model = DistributedDataParallel(torch.nn.EmbeddingBag(20, 4, sparse=True, mode="sum"), process_group=group)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        for step in range(3):
            optimizer.zero_grad()
            model((torch.arange(8) * (rank + 1) + step).view(2, 4) % 20).sum().backward()
            optimizer.step()
        return model.module.weight.detach()

    ours = trained(dist.group.WORLD)
    theirs = trained(dist.new_group(backend="gloo"))
    torch.testing.assert_close(ours, theirs)


def shapes_job(rank: int, _size: int) -> None:
    with pytest.raises(weft.ArgumentError, match=r"expected \[\d, 3\]"):
        dist.all_reduce(torch.sparse_coo_tensor(torch.zeros(2, 1).long(), torch.ones(1), (5 + rank, 3)))
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == 2
