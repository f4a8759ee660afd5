"""Tests of process groups of the ranks that are left."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from datetime import timedelta

import numpy as np
import pytest
import torch
import torch.distributed as dist
from deaths import let_others_come
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import weft
import weft.torch
from weft.torch import registration
from weft.torch.parallel.communication import Communication


def test_training_continues_with_remaining_ranks(workers) -> None:
    workers.run(4, going_on_job, dying=[2, 3])


def test_a_group_of_some_ranks(workers) -> None:
    workers.run(3, part_job, dying=[2])


def test_other_backend(workers) -> None:
    workers.run(1, other_backend_job, backend="gloo")


@pytest.mark.parametrize("place", ["group", "communication thread"])
@pytest.mark.parametrize("how", ["shrink", "abort", "other call"])
def test_rank_that_gives_up_a_group_ends_operations_of_others(workers, place: str, how: str) -> None:
    workers.run(3, giving_up_job, place, how)


def lose(group: dist.ProcessGroup | None, rank: int, lost: int, others: Iterable[int]) -> None:
    """Works until a rank is lost."""
    let_others_come(rank, lost, others, f"before the loss of {lost}")
    if rank == lost:
        os._exit(1)
    with pytest.raises(weft.PeerLost):
        while True:
            dist.all_reduce(torch.ones(1000), group=group)


def check_training(group: dist.ProcessGroup) -> None:
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    torch.manual_seed(dist.get_rank())
    for wrapper in (DistributedDataParallel, weft.torch.DataParallel):
        model = wrapper(nn.Linear(3, 2), process_group=group)
        model(torch.full((1, 3), float(rank))).sum().backward()
        expected = torch.full((2, 3), (size - 1) / 2)
        for parameter in model.parameters():
            if parameter.dim() == 2:
                assert torch.equal(parameter.grad, expected)


def going_on_job(rank: int, _size: int) -> None:
    group = None
    for lost in (3, 2):
        lose(group, rank, lost, range(lost))
        group = weft.torch.shrink(group, timeout=timedelta(seconds=20))
        assert dist.get_process_group_ranks(group) == list(range(lost))
        assert dist.get_rank() == rank
        check_training(group)
        objects = [None] * lost
        dist.all_gather_object(objects, rank, group=group)
        assert objects == list(range(lost))
    dist.monitored_barrier(group)
    assert "2 ranks" in weft.torch.describe(group)
    part = dist.split_group(group, [[0, 1]])
    check_training(part)
    dist.destroy_process_group(group)


def part_job(rank: int, _size: int) -> None:
    part = dist.new_group([2, 1])
    if rank == 0:
        return
    if hasattr(dist, "shrink_group") and not registration._accepts_python_backends():
        with pytest.raises(TypeError, match="does not support shrinking"):
            dist.shrink_group([1 - dist.get_rank(part)], part)
    lose(part, rank, 2, [1])
    left = weft.torch.shrink(part)
    assert dist.get_process_group_ranks(left) == [1]
    x = torch.ones(3)
    dist.broadcast(x, 1, group=left)


@pytest.mark.parametrize("how", ["shrink", "abort"])
def test_communication_thread_that_starts_in_a_group_that_was_given_up(workers, how: str) -> None:
    """Its group is made then, and must end as the other has."""
    workers.run(3, starting_late_job, how)


def giving_up_job(rank: int, _size: int, place: str, how: str) -> None:
    """Rank 1 leaves the others in an operation, with a timeout of 30 s."""
    communication = Communication(None)
    communication.all_arrive().result()
    began = time.monotonic()
    if rank == 1 and how == "abort":
        communication.group.abort("a test")
    elif rank == 1 and how == "other call":
        with pytest.raises(weft.Error):
            communication.group.all_gather(np.ones(3))
    elif rank != 1:
        with pytest.raises(weft.Error):
            if place == "group":
                dist.barrier()
            else:
                if how == "other call":
                    communication.group.all_reduce_async(np.ones(3))
                communication.all_arrive().result()
    left = weft.torch.shrink()
    assert dist.get_process_group_ranks(left) == [0, 1, 2]
    assert time.monotonic() - began < 10
    check_training(left)


def starting_late_job(rank: int, _size: int, how: str) -> None:
    communication = Communication(None)
    dist.barrier()
    began = time.monotonic()
    if rank == 1 and how == "abort":
        communication.group.abort("a test")
    elif rank != 1:
        with pytest.raises(weft.Error):
            dist.barrier()
        with pytest.raises(weft.Error):
            communication.all_arrive().result()
    left = weft.torch.shrink()
    assert dist.get_process_group_ranks(left) == [0, 1, 2]
    assert time.monotonic() - began < 10
    check_training(left)


def other_backend_job(_rank: int, _size: int) -> None:
    with pytest.raises(weft.ArgumentError, match="expected weft"):
        weft.torch.shrink()
