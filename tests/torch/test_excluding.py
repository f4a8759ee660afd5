"""Tests of `torch.distributed.shrink_group`: groups without the ranks that the program names."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from deaths import let_others_come
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import weft
import weft.torch
from weft.torch import registration
from weft.torch.lookup import backend_of

pytestmark = pytest.mark.skipif(not registration._accepts_python_backends(), reason="backends: torch 2.14 and newer")
SHORT = timedelta(seconds=2)


def test_living_ranks_are_left_out(workers) -> None:
    workers.run(4, living_job)


def test_dead_rank_is_left_out(workers) -> None:
    workers.run(3, death_job, dying=[2])


def test_store_that_died_with_its_rank(workers) -> None:
    workers.run(4, lost_store_job, dying=[0, 1])


def test_group_of_some_ranks(workers) -> None:
    workers.run(4, part_job, dying=[3])


def test_operations_under_way_are_ended(workers) -> None:
    workers.run(3, abort_job)


def test_wrong_lists(workers) -> None:
    workers.run(3, wrong_lists_job)


def test_lists_that_differ(workers) -> None:
    workers.run(3, different_lists_job)


def test_dead_rank_that_is_not_in_the_list(workers) -> None:
    workers.run(4, unlisted_death_job, dying=[3])


def check(group: dist.ProcessGroup, size: int) -> None:
    """Reduces, trains, and gathers objects in the group."""
    rank = dist.get_rank(group)
    assert dist.get_world_size(group) == size
    tensor = torch.tensor([float(rank)])
    dist.all_reduce(tensor, group=group)
    assert tensor.item() == sum(range(size))
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(3, 2), process_group=group)
    model(torch.full((1, 3), float(rank))).sum().backward()
    assert torch.equal(model.module.weight.grad, torch.full((2, 3), (size - 1) / 2))
    objects = [None] * size
    dist.all_gather_object(objects, rank, group=group)
    assert objects == list(range(size))


def living_job(rank: int, _size: int) -> None:
    dist.new_group([0, 2])
    if rank == 1:
        return
    group = dist.shrink_group([1])
    assert group is dist.group.WORLD
    assert dist.get_rank() == {0: 0, 2: 1, 3: 2}[rank]
    assert dist.get_backend() == "weft"
    check(group, 3)
    dist.monitored_barrier()
    part = dist.new_group([0, 2])  # of the new ranks
    if dist.get_rank() != 1:
        check(part, 2)
    dist.barrier()


def death_job(rank: int, _size: int) -> None:
    let_others_come(rank, 2, range(2))
    if rank == 2:
        os._exit(1)
    with pytest.raises(weft.PeerLost):
        while True:
            dist.all_reduce(torch.ones(1000))
    check(dist.shrink_group([2]), 2)
    assert dist.get_rank() == rank


def lost_store_job(rank: int, size: int) -> None:
    """Rank 0 serves the store and dies, and so does the rank that serves the next one."""
    files = dist.distributed_c10d._get_default_store()
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        files.set("port", str(store.port))
    else:
        store = dist.TCPStore("127.0.0.1", int(files.get("port")), is_master=False)
    dist.destroy_process_group()
    dist.init_process_group("weft", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=20))
    del store, files
    for lost in range(2):
        let_others_come(dist.get_rank(), 0, range(1, dist.get_world_size()), f"before the loss of {lost}")
        if rank == lost:
            os._exit(1)
        with pytest.raises(weft.PeerLost):
            while True:
                dist.all_reduce(torch.ones(1000))
        check(dist.shrink_group([0]), size - 1 - lost)
        assert dist.get_rank() == rank - 1 - lost


def part_job(rank: int, _size: int) -> None:
    part = dist.new_group([1, 2, 3])
    let_others_come(rank, 3, [0, 1, 2])
    if rank == 3:
        os._exit(1)
    if rank == 0:
        return
    left = dist.shrink_group([2], part)
    assert dist.get_process_group_ranks(left) == [1, 2]
    assert dist.get_rank() == rank
    tensor = torch.full((3,), float(rank))
    dist.broadcast(tensor, 1, group=left)
    assert tensor.tolist() == [1.0] * 3
    check(left, 2)


def abort_job(rank: int, _size: int) -> None:
    if rank == 2:
        with pytest.raises(weft.Aborted, match="SHRINK_ABORT"):
            dist.recv(torch.ones(1), 0)
        return
    works = [dist.irecv(torch.ones(1), 1 - rank)]
    group = dist.shrink_group([2], shrink_flags=dist.distributed_c10d.SHRINK_ABORT)
    with pytest.raises(weft.Aborted, match="SHRINK_ABORT"):
        works[0].wait()
    check(group, 2)


def wrong_lists_job(rank: int, _size: int) -> None:
    with pytest.raises(ValueError, match="out of bounds"):
        dist.shrink_group([3])
    with pytest.raises(RuntimeError, match="should not call shrink_group"):
        dist.shrink_group([rank])
    backend = backend_of(None)
    with pytest.raises(weft.ArgumentError, match=f"rank {rank} .* must not call shrink_group"):
        backend.shrink([rank])
    with pytest.raises(weft.ArgumentError, match=r"ranks \[-1, 3\] cannot be excluded"):
        backend.shrink([-1, 3])
    dist.barrier()  # the group is as it was


def different_lists_job(rank: int, _size: int) -> None:
    if rank == 2:
        return
    options = dist.distributed_c10d.C10DBackend.Options("weft", timeout=SHORT)
    with pytest.raises(weft.Timeout):
        dist.shrink_group([2] if rank == 0 else [0], pg_options=options)


def unlisted_death_job(rank: int, _size: int) -> None:
    let_others_come(rank, 3, range(3))
    if rank == 3:
        os._exit(1)
    if rank == 2:
        let_others_come(2, 2, range(2), "seen")
        return
    with pytest.raises(weft.PeerLost, match="rank 3"):
        while True:
            dist.all_reduce(torch.ones(1000))
    let_others_come(rank, 2, range(2), "seen")
    with pytest.raises(weft.PeerLost, match="rank 3"):
        dist.shrink_group([2])
