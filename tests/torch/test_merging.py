"""Tests of `merge_remote_group`: process groups that become one at a store."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from deaths import let_others_come
from torch.distributed import ProcessGroup

import weft
from weft.torch import registration

pytestmark = pytest.mark.skipif(
    not (registration._accepts_python_backends() and hasattr(ProcessGroup, "merge_remote_group")),
    reason="torch 2.14 and newer",
)


@pytest.mark.parametrize("backend", ("weft", "gloo"))
def test_groups_become_one(workers, backend: str) -> None:
    workers.run(4, merging_job, backend=backend)


def test_group_that_does_not_come(workers) -> None:
    workers.run(4, absent_job)


def test_dead_rank_of_a_merged_group(workers) -> None:
    workers.run(4, death_job, dying=[3])


def merged(rank: int, timeout: timedelta = timedelta(seconds=20)) -> ProcessGroup:
    """Merges the groups of ranks 0 and 1, and of 2 and 3."""
    lower, upper = dist.new_group([0, 1]), dist.new_group([2, 3])
    store = dist.PrefixStore("where they meet", dist.distributed_c10d._get_default_store())
    return (lower if rank < 2 else upper).merge_remote_group(store, 4, timeout)


def merging_job(rank: int, _size: int) -> None:
    group = merged(rank)
    assert group.size() == 4
    ranks = [torch.zeros(1) for _ in range(4)]
    group.allgather([ranks], [torch.tensor([float(group.rank())])]).wait()
    assert [int(one) for one in ranks] == list(range(4))
    tensor = torch.tensor([float(rank)])
    group.allreduce([tensor]).wait()
    assert tensor.item() == 6.0
    dist.barrier()  # the default group goes on
    group.shutdown()


def absent_job(rank: int, _size: int) -> None:
    part = dist.new_group([0, 1])
    if rank > 1:
        return
    store = dist.PrefixStore("where they meet", dist.distributed_c10d._get_default_store())
    with pytest.raises(weft.Timeout, match="of 4"):
        part.merge_remote_group(store, 4, timedelta(seconds=2))
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=part)
    assert tensor.item() == 2.0


def death_job(rank: int, _size: int) -> None:
    group = merged(rank)
    let_others_come(rank, 3, range(3))
    if rank == 3:
        os._exit(1)
    with pytest.raises(weft.PeerLost):
        while True:
            group.allreduce([torch.ones(1000)]).wait()
