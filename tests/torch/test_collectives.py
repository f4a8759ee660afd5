"""Tests of every collective through torch.distributed against expected results."""

from __future__ import annotations

from functools import reduce

import pytest
import torch
import torch.distributed as dist

SIZES = (1, 2, 3, 4)
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16)
DTYPES += (torch.int8, torch.uint8)
LENGTHS = (0, 1, 7, 100_003)
OPERATIONS = {
    dist.ReduceOp.SUM: torch.add,
    dist.ReduceOp.PRODUCT: torch.mul,
    dist.ReduceOp.MIN: torch.minimum,
    dist.ReduceOp.MAX: torch.maximum,
}


def values(rank: int, length: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Returns the contribution of a rank: small whole numbers, so that every order of summation
    gives the same.
    """
    return ((torch.arange(length) * (rank + 3)) % 4 + 1).to(dtype)


def reduced(size: int, length: int, dtype: torch.dtype, op: dist.ReduceOp = dist.ReduceOp.SUM) -> torch.Tensor:
    return reduce(OPERATIONS[op], [values(rank, length, dtype) for rank in range(size)])


def check(actual: torch.Tensor, expected: torch.Tensor) -> None:
    assert actual.dtype == expected.dtype
    assert torch.equal(actual, expected.reshape(actual.shape)), f"{actual} is not {expected}"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "job",
    [
        "all_reduce_job",
        "reduce_job",
        "broadcast_job",
        "all_gather_job",
        "gather_scatter_job",
        "reduce_scatter_job",
        "all_to_all_job",
        "strided_job",
        "other_types_job",
        "coalesced_job",
        "zero_size_job",
        "object_job",
    ],
)
def test_collective(workers, size: int, job: str) -> None:
    workers.run(size, globals()[job])


def all_reduce_job(rank: int, size: int) -> None:
    for length in LENGTHS:
        for dtype in DTYPES if length < 1000 else DTYPES[1:4]:
            for op in OPERATIONS:
                tensor = values(rank, length, dtype)
                dist.all_reduce(tensor, op)
                check(tensor, reduced(size, length, dtype, op))
    tensor = values(rank, 5)
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    torch.testing.assert_close(tensor, reduced(size, 5, torch.float32) / size)
    bits = torch.tensor([1 << rank, 3, 7 << rank])
    for op, expected in ((dist.ReduceOp.BOR, torch.bitwise_or), (dist.ReduceOp.BXOR, torch.bitwise_xor)):
        tensor = bits.clone()
        dist.all_reduce(tensor, op)
        check(tensor, reduce(expected, [torch.tensor([1 << r, 3, 7 << r]) for r in range(size)]))
    complex_numbers = torch.complex(values(rank, 4), -values(rank, 4))
    dist.all_reduce(complex_numbers)
    check(complex_numbers, torch.complex(reduced(size, 4, torch.float32), -reduced(size, 4, torch.float32)))


def reduce_job(rank: int, size: int) -> None:
    for root in range(size):
        tensor = values(rank, 1003)
        dist.reduce(tensor, root)
        check(tensor, reduced(size, 1003, torch.float32) if rank == root else values(rank, 1003))


def broadcast_job(rank: int, size: int) -> None:
    for root in range(size):
        for length in LENGTHS:
            tensor = values(rank, length)
            dist.broadcast(tensor, root)
            check(tensor, values(root, length))
    module = torch.nn.Linear(3, 2)
    dist.broadcast(module.weight, 0)  # a leaf that requires gradients
    weights = [torch.empty_like(module.weight) for _ in range(size)]
    dist.all_gather(weights, module.weight.detach())
    assert all(torch.equal(weight, weights[0]) for weight in weights)


def all_gather_job(rank: int, size: int) -> None:
    for length in LENGTHS:
        expected = torch.stack([values(r, length) for r in range(size)])
        outputs = [torch.empty(length) for _ in range(size)]
        dist.all_gather(outputs, values(rank, length))
        check(torch.stack(outputs), expected)
        for shape in ((size * length,), (size, length)):
            output = torch.empty(shape)
            dist.all_gather_into_tensor(output, values(rank, length))
            check(output, expected)
    outputs = [torch.empty(r + 1) for r in range(size)]
    dist.all_gather(outputs, values(rank, rank + 1))
    check(torch.cat(outputs), torch.cat([values(r, r + 1) for r in range(size)]))
    whole = torch.full((size, 3), -1.0)
    whole[rank] = values(rank, 3)
    dist.all_gather_into_tensor(whole, whole[rank])  # in place
    check(whole, torch.stack([values(r, 3) for r in range(size)]))


def gather_scatter_job(rank: int, size: int) -> None:
    for root in range(size):
        blocks = [torch.empty(2, 5) for _ in range(size)] if rank == root else None
        dist.gather(values(rank, 10).view(2, 5), blocks, dst=root)
        if rank == root:
            check(torch.stack(blocks), torch.stack([values(r, 10) for r in range(size)]))
        block = torch.empty(7)
        dist.scatter(block, [values(r + 1, 7) for r in range(size)] if rank == root else None, src=root)
        check(block, values(rank + 1, 7))


def reduce_scatter_job(rank: int, size: int) -> None:
    def expected(block: int, length: int) -> torch.Tensor:
        return sum((values(r + block, length) for r in range(size)), torch.zeros(length))

    for length in LENGTHS:
        inputs = [values(rank + block, length) for block in range(size)]
        output = torch.empty(length)
        dist.reduce_scatter(output, inputs)
        check(output, expected(rank, length))
        dist.reduce_scatter_tensor(output.zero_(), torch.cat(inputs))
        check(output, expected(rank, length))
    inputs = [values(rank + block, block + 2) for block in range(size)]
    output = torch.empty(rank + 2)
    dist.reduce_scatter(output, inputs)
    check(output, expected(rank, rank + 2))


def all_to_all_job(rank: int, size: int) -> None:
    output = torch.empty(size, 3)
    dist.all_to_all_single(output, torch.stack([values(rank + 2 * to, 3) for to in range(size)]))
    check(output, torch.stack([values(r + 2 * rank, 3) for r in range(size)]))
    send, receive = [to + rank for to in range(size)], [r + rank for r in range(size)]
    parts = [values(rank + 2 * to, 2 * n).view(n, 2) for to, n in enumerate(send)]
    output = torch.empty(sum(receive), 2)
    dist.all_to_all_single(output, torch.cat(parts), receive, send)
    expected = [values(r + 2 * rank, 2 * n).view(n, 2) for r, n in enumerate(receive)]
    check(output, torch.cat(expected))
    outputs = [torch.empty(n, 2) for n in receive]
    dist.all_to_all(outputs, parts)
    check(torch.cat(outputs), torch.cat(expected))


def strided_job(rank: int, size: int) -> None:
    """Tensors that are not contiguous, differently on each rank."""

    def strided(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.t().contiguous().t() if rank % 2 else torch.stack([tensor, tensor], -1)[..., 0]

    mine, total = values(rank, 12).view(3, 4), reduced(size, 12, torch.float32)
    tensor = strided(mine)
    dist.all_reduce(tensor)
    check(tensor, total)
    tensor = strided(mine)
    dist.all_reduce(tensor, async_op=True).wait()
    check(tensor, total)
    tensor = strided(mine)
    check(dist.all_reduce(tensor, async_op=True).get_future().wait()[0], total)
    tensor = strided(mine)
    dist.reduce(tensor, 0)
    check(tensor, total if rank == 0 else mine)
    tensor = strided(mine)
    dist.broadcast(tensor, size - 1)
    check(tensor, values(size - 1, 12))
    outputs = [strided(torch.zeros(3, 4)) for _ in range(size)]
    dist.all_gather(outputs, strided(mine))
    check(torch.stack(outputs), torch.stack([values(r, 12) for r in range(size)]))
    output = strided(torch.zeros(3, 4))
    dist.reduce_scatter(output, [strided(mine) for _ in range(size)])
    check(output, total)
    dist.scatter(output.zero_(), [strided(mine)] * size if rank == 0 else None, src=0)
    check(output, values(0, 12))


def other_types_job(rank: int, size: int) -> None:
    """Types that weft moves but does not compute with."""
    for dtype in (torch.bool, torch.complex64, torch.float8_e4m3fn):
        outputs = [torch.empty(3, dtype=dtype) for _ in range(size)]
        dist.all_gather(outputs, values(rank, 3).to(dtype))
        for r, output in enumerate(outputs):
            check(output.view(torch.uint8), values(r, 3).to(dtype).view(torch.uint8))
    flags = torch.tensor([rank == 0, False, True])
    dist.all_reduce(flags, dist.ReduceOp.MAX)
    check(flags, torch.tensor([True, False, True]))
    try:
        dist.all_reduce(torch.ones(3).to(torch.float8_e4m3fn))
    except Exception as error:
        assert "float8_e4m3fn" in str(error)
    else:
        raise AssertionError("reducing float8 must be refused")


def coalesced_job(rank: int, size: int) -> None:
    lengths = (3, 50, 0, 1)
    for asynchronous in (False, True):
        tensors = [values(rank, length) for length in lengths]
        with dist._coalescing_manager(async_ops=asynchronous) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor)
        manager.wait()
        for tensor in tensors:
            check(tensor, reduced(size, len(tensor), torch.float32))
        outputs = [torch.empty(size * length) for length in lengths]
        with dist._coalescing_manager(async_ops=asynchronous) as manager:
            for output, length in zip(outputs, lengths, strict=True):
                dist.all_gather_into_tensor(output, values(rank, length))
        manager.wait()
        for output, length in zip(outputs, lengths, strict=True):
            check(output, torch.cat([values(r, length) for r in range(size)]))
        outputs = [torch.empty(length) for length in lengths]
        with dist._coalescing_manager(async_ops=asynchronous) as manager:
            for output, length in zip(outputs, lengths, strict=True):
                dist.reduce_scatter_tensor(output, torch.cat([values(rank + r, length) for r in range(size)]))
        manager.wait()
        for output, length in zip(outputs, lengths, strict=True):
            check(output, sum((values(r + rank, length) for r in range(size)), torch.zeros(length)))
    lists = [[torch.empty(length) for length in lengths] for _ in range(size)]
    dist.all_gather_coalesced(lists, [values(rank, length) for length in lengths])
    for r in range(size):
        for output, length in zip(lists[r], lengths, strict=True):
            check(output, values(r, length))
    tensors = [values(rank, length) for length in lengths]
    dist.all_reduce_coalesced(tensors, dist.ReduceOp.MAX)
    for tensor, length in zip(tensors, lengths, strict=True):
        check(tensor, reduced(size, length, torch.float32, dist.ReduceOp.MAX))


def zero_size_job(rank: int, size: int) -> None:
    """Nothing to move is moved in order, too."""
    nothing = torch.empty(0, 4)
    for _ in range(2):
        dist.all_reduce(nothing)
        dist.reduce(nothing, size - 1)
        dist.broadcast(nothing, 0)
        dist.all_gather([torch.empty(0, 4) for _ in range(size)], nothing)
        dist.all_gather_into_tensor(torch.empty(0, 4), nothing)
        dist.gather(nothing, [torch.empty(0, 4) for _ in range(size)] if rank == 0 else None)
        dist.scatter(nothing, [torch.empty(0, 4) for _ in range(size)] if rank == 0 else None)
        dist.reduce_scatter(nothing, [torch.empty(0, 4) for _ in range(size)])
        dist.reduce_scatter_tensor(nothing, torch.empty(0, 4))
        dist.all_to_all_single(nothing, torch.empty(0, 4))
        dist.all_to_all([torch.empty(0, 4) for _ in range(size)], [torch.empty(0, 4) for _ in range(size)])
    outputs = [torch.empty(r) for r in range(size)]
    dist.all_gather(outputs, values(rank, rank))  # nothing from rank 0 only
    check(torch.cat(outputs), torch.cat([values(r, r) for r in range(size)]))
    send, receive = [0] * size, [0] * size
    send[0], receive = rank, list(range(size)) if rank == 0 else receive
    output = torch.empty(sum(receive))
    dist.all_to_all_single(output, values(rank, rank), receive, send)
    check(output, torch.cat([values(r, r) for r in range(size)]) if rank == 0 else torch.empty(0))


def object_job(rank: int, size: int) -> None:
    gathered: list[object] = [None] * size
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * 100 * rank})
    assert gathered == [{"rank": r, "text": "x" * 100 * r} for r in range(size)]
    objects = [f"from {rank}", rank] if rank == size - 1 else [None, None]
    dist.broadcast_object_list(objects, src=size - 1)
    assert objects == [f"from {size - 1}", size - 1]
    at_root: list[object] | None = [None] * size if rank == 0 else None
    dist.gather_object(rank * 10, at_root, dst=0)
    assert at_root == ([r * 10 for r in range(size)] if rank == 0 else None)
    mine: list[object] = [None]
    dist.scatter_object_list(mine, [f"for {r}" for r in range(size)] if rank == 0 else None, src=0)
    assert mine == [f"for {rank}"]
