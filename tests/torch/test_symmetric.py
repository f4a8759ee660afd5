"""Tests of symmetric memory: `weft.torch.empty_symmetric`, and FSDP's use of the backend."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import weft
from weft.torch import empty_symmetric, symmetric_operations

ROWS, COLUMNS = 64, 96  # more than what is too small for symmetric memory to matter


@pytest.mark.parametrize("size", (2, 3, 4))
def test_operations(workers, size: int) -> None:
    workers.run(size, operations_job)


@pytest.mark.parametrize("size", (1, 2))
def test_shapes_and_types(workers, size: int) -> None:
    workers.run(size, shapes_job)


def test_parts_and_places(workers) -> None:
    workers.run(2, parts_job)


def test_groups(workers) -> None:
    workers.run(4, groups_job)


def test_refusals(workers) -> None:
    workers.run(3, refusals_job)


def test_different_sizes(workers) -> None:
    workers.run(2, different_sizes_job)


def test_freeing(workers) -> None:
    workers.run(2, freeing_job)


def test_tensor_outlives_its_group(workers) -> None:
    workers.run(2, outlives_job)


@pytest.mark.parametrize("size", (2, 3))
def test_lent_blocks(workers, size: int) -> None:
    workers.run(size, lent_job)


def test_blocks_kept_on_one_rank(workers) -> None:
    workers.run(2, kept_on_one_rank_job)


def test_one_rank_borrows_nothing(workers) -> None:
    workers.run(1, alone_job)


def test_detailed_debugging(workers) -> None:
    workers.run(2, detail_job)


def numbers(rank: int, *shape: int) -> Tensor:
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).view(shape) % 97 + rank


def symmetric(values: Tensor) -> Tensor:
    return empty_symmetric(values.shape, dtype=values.dtype).copy_(values)


def counted(operation: Callable[[], object]) -> int:
    before = symmetric_operations()
    operation()
    return symmetric_operations() - before


def operations_job(rank: int, size: int) -> None:
    everybody = torch.stack([numbers(peer, ROWS, COLUMNS) for peer in range(size)])
    mine = numbers(rank, ROWS, COLUMNS)
    x = symmetric(mine)
    assert counted(lambda: dist.all_reduce(x)) == 1
    assert torch.equal(x, everybody.sum(0))
    x.copy_(mine)
    assert counted(lambda: dist.all_reduce(x, dist.ReduceOp.MAX, async_op=True).wait()) == 1
    assert torch.equal(x, everybody.amax(0))
    x.copy_(mine)
    assert counted(lambda: dist.broadcast(x, size - 1)) == 1
    assert torch.equal(x, everybody[-1])
    x.copy_(mine)
    whole = empty_symmetric(size * ROWS, COLUMNS)
    assert counted(lambda: dist.all_gather_into_tensor(whole, x)) == 1
    assert torch.equal(whole, everybody.flatten(0, 1))
    part = empty_symmetric(ROWS, COLUMNS)
    assert counted(lambda: dist.reduce_scatter_tensor(part, whole)) == 1
    assert torch.equal(part, everybody[rank] * size)
    ordinary = mine.clone()
    assert counted(lambda: dist.all_reduce(ordinary)) == 0
    assert torch.equal(ordinary, everybody.sum(0))


def shapes_job(_rank: int, size: int) -> None:
    for shape in ((), (0,), (3, 0, 2), (5,), (2, 3, 4)):
        x = empty_symmetric(*shape)
        assert x.shape == torch.Size(shape)
        assert x.dtype == torch.get_default_dtype()
        assert not x.any()
        assert empty_symmetric(shape).shape == x.shape
    assert empty_symmetric(torch.Size((4, 2))).shape == (4, 2)
    for dtype in (torch.float64, torch.bfloat16, torch.float16, torch.int8, torch.uint64, torch.bool, torch.complex64):
        x = empty_symmetric(5000, dtype=dtype).fill_(1)
        assert x.dtype == dtype
        assert x.is_contiguous()
        dist.all_reduce(x)
        assert x.tolist() == [True if dtype == torch.bool else size] * 5000


def parts_job(rank: int, size: int) -> None:
    """Which parts of tensors in symmetric memory take its path, and which give the right result
    without.
    """
    x, others = empty_symmetric(4 * ROWS, COLUMNS), empty_symmetric(4 * ROWS, COLUMNS)
    for place, expected in ((x[ROWS : 2 * ROWS], 1), (x[rank * ROWS : (rank + 1) * ROWS], 0), (x[:, 1:], 0)):
        place.fill_(rank + 1)
        assert counted(lambda place=place: dist.all_reduce(place)) == expected
        assert (place == 3).all()
    mixed = (x if rank == 0 else others)[:ROWS].fill_(rank + 1)
    assert counted(lambda: dist.all_reduce(mixed)) == 0
    assert (mixed == 3).all()
    for offset in (0, 7):
        whole = x.view(-1)[offset : offset + size * ROWS * COLUMNS]
        own = whole.chunk(size)[rank].copy_(numbers(rank, ROWS * COLUMNS))
        assert counted(lambda whole=whole, own=own: dist.all_gather_into_tensor(whole, own)) == 1
        assert torch.equal(whole, torch.cat([numbers(peer, ROWS * COLUMNS) for peer in range(size)]))
    shifted = x.view(-1)[1 : 1 + ROWS * COLUMNS].copy_(numbers(rank, ROWS * COLUMNS))  # overlaps, not its own block
    whole = x.view(-1)[: size * ROWS * COLUMNS]
    assert counted(lambda: dist.all_gather_into_tensor(whole, shifted)) == 0
    assert torch.equal(whole, torch.cat([numbers(peer, ROWS * COLUMNS) for peer in range(size)]))


def test_description(workers) -> None:
    workers.run(3, description_job)


def description_job(rank: int, _size: int) -> None:
    text = weft.torch.describe()
    others = [other for other in range(3) if other != rank]
    assert f"rank {rank} on " in text.splitlines()[0]
    assert all(f"{other} on " in text for other in others)
    assert "  shm: " in text
    assert "all-reduce: " in text
    assert "barrier: " in text
    pair = dist.new_group([0, 2])
    if rank == 1:
        with pytest.raises(weft.ArgumentError, match="not in it"):
            weft.torch.describe(pair)
    else:
        assert "2 ranks" in weft.torch.describe(pair)


def groups_job(rank: int, _size: int) -> None:
    lower, upper = dist.new_group([0, 1]), dist.new_group([2, 3])
    mine = lower if rank < 2 else upper
    x = empty_symmetric(ROWS, COLUMNS, group=mine).fill_(rank)
    dist.all_reduce(x, group=mine)
    assert (x == (1 if rank < 2 else 5)).all()
    assert symmetric_operations(mine) == 1
    x.fill_(rank)
    dist.all_reduce(x)  # another group: as any other memory
    assert (x == 6).all()
    assert symmetric_operations() == 0
    with pytest.raises(weft.ArgumentError, match="this rank is not in it"):
        empty_symmetric(3, group=upper if rank < 2 else lower)


def refusals_job(_rank: int, _size: int) -> None:
    gloo = dist.new_group(backend="gloo")
    for call in (lambda: empty_symmetric(3, group=gloo), lambda: symmetric_operations(gloo)):
        with pytest.raises(weft.ArgumentError, match=r"the backend of group .* is gloo: expected weft"):
            call()
    with pytest.raises(weft.ArgumentError, match=r"size=\(2, -1\) is not allowed"):
        empty_symmetric(2, -1)
    with pytest.raises(weft.UnsupportedError, match=r"elements of type torch.float8_e5m2 are not supported"):
        empty_symmetric(2, dtype=torch.float8_e5m2)
    dist.barrier()  # who leaves first ends Gloo's connections


def different_sizes_job(rank: int, _size: int) -> None:
    with pytest.raises(weft.ConfigError, match="this rank requests"):
        empty_symmetric(100 + rank)


def mapped(nbytes: int) -> int:
    """How many pieces of symmetric memory of this size, and of its signals, this process maps:
    others may be on their way out.
    """
    lines = Path("/proc/self/maps").read_text().splitlines()
    spans = [line.split()[0].split("-") for line in lines if "weft-symmetric" in line]
    lengths = [int(end, 16) - int(begin, 16) for begin, end in spans]
    return sum(0 <= length - nbytes < 2 * mmap.PAGESIZE for length in lengths)


def freeing_job(rank: int, size: int) -> None:
    rows = 11 * ROWS  # a size of its own
    nbytes = 4 * rows * COLUMNS
    assert mapped(nbytes) == 0
    dist.barrier()
    x = empty_symmetric(rows, COLUMNS)
    view = x[3:]
    assert mapped(nbytes) == size
    del x
    if rank == 0:
        del view
    dist.barrier()
    assert mapped(nbytes) > 0, "the other rank still uses it"
    dist.barrier()
    if rank == 1:
        assert view.sum() == 0
        del view
    deadline = time.monotonic() + 20
    while mapped(nbytes) > 0:
        assert time.monotonic() < deadline, "not unmapped"
        time.sleep(0.001)
    dist.barrier()


def outlives_job(rank: int, _size: int) -> None:
    x = empty_symmetric(ROWS, COLUMNS).fill_(rank)
    dist.barrier()
    dist.destroy_process_group()
    x += 1
    assert (x == rank + 1).all()


def lend(elements: int = ROWS * COLUMNS, dtype: torch.dtype = torch.float32) -> Tensor:
    """A tensor as FSDP gets it."""
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.supports_tensor_alloc(torch.device("cpu"))
    return backend.allocate_tensor(elements, dtype=dtype, device=torch.device("cpu"))


def lent_job(rank: int, size: int) -> None:
    kept = [lend().fill_(rank) for _ in range(10)]
    addresses = [x.data_ptr() for x in kept]
    assert len(set(addresses)) == 10
    before = symmetric_operations()
    for x in kept:
        dist.all_reduce(x)
    assert symmetric_operations() - before == 10
    total = sum(range(size))
    assert all((x == total).all() for x in kept)
    part = kept[4].view(ROWS, COLUMNS)[1:]
    del kept, x
    again = [lend().fill_(rank) for _ in range(9)]
    assert {x.data_ptr() for x in again} <= set(addresses) - {addresses[4]}
    assert (part == total).all()
    assert all(counted(lambda x=x: dist.all_reduce(x)) == 1 for x in again)
    assert lend(dtype=torch.float64).dtype == torch.float64
    assert lend(0).numel() == 0


def kept_on_one_rank_job(rank: int, _size: int) -> None:
    """A block that one rank keeps is reused by no rank; all use the same blocks nevertheless."""
    kept = []
    for number in range(20):
        x = lend().fill_(number)
        assert counted(lambda x=x: dist.all_reduce(x)) == 1
        if rank == number % 2 and number % 3:
            kept.append((number, x))
        del x
    assert all((x == 2 * number).all() for number, x in kept)


def alone_job(_rank: int, _size: int) -> None:
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert not backend.supports_tensor_alloc(torch.device("cpu"))


def detail_job(rank: int, size: int) -> None:
    """Under TORCH_DISTRIBUTED_DEBUG=DETAIL, which from torch 2.14 on wraps the backend and hides
    its symmetric memory.
    """
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    try:
        group = dist.new_group(list(range(size)))
    finally:
        dist.set_debug_level(dist.DebugLevel.OFF)
    x = empty_symmetric(ROWS, COLUMNS, group=group).fill_(rank)
    dist.all_reduce(x, group=group)
    assert (x == 1).all()
    assert symmetric_operations(group) == 1
    backend = group._get_backend(torch.device("cpu"))
    if backend.supports_tensor_alloc(torch.device("cpu")):
        assert backend.allocate_tensor(3, dtype=torch.float32, device=torch.device("cpu")).shape == (3,)
    dist.barrier(group)  # who leaves first ends the connections of Gloo, which compares the calls
