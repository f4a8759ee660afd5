"""Tests of priorities of operations: of process groups, and of blocks of code."""

import pytest
import torch
import torch.distributed as dist

import weft
import weft.torch


def test_urgent_operations_go_past_others(workers) -> None:
    workers.run(3, urgent_job)


def test_priorities_that_are_none(workers) -> None:
    workers.run(2, refused_job)


def urgent_job(rank: int, size: int) -> None:
    """Behind more large operations than there are lanes, in the default group and an urgent one."""
    expected = float(size * (size + 1) // 2)
    urgent_group = dist.new_group(list(range(size)))
    weft.torch.set_priority(3, urgent_group)
    for group in (None, urgent_group):
        large = [torch.full((1 << 20,), float(rank + 1)) for _ in range(8)]
        small = torch.full((5,), float(rank + 1))
        dist.barrier()
        works = [dist.all_reduce(tensor, async_op=True) for tensor in large]
        if group is None:
            with weft.torch.priority(7):
                dist.all_reduce(small)
        else:
            dist.all_reduce(small, group=group)
        assert small.tolist() == [expected] * 5
        for work in works:
            work.wait()
        assert all(bool((tensor == expected).all()) for tensor in large)


def refused_job(_rank: int, size: int) -> None:
    for level in ("high", 1.5, True, 2**31):
        with pytest.raises(weft.ArgumentError, match="priority="), weft.torch.priority(level):
            pass
    # Ranks that differ get an error.
    tensor = torch.ones(10)
    with pytest.raises(weft.Desync, match="priority"), weft.torch.priority(_rank):
        dist.all_reduce(tensor)
    assert size == 2
