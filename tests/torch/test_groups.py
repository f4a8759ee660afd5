"""Tests of process groups: sub-groups, names, discovery, end."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from deaths import let_others_come

import weft
from weft.schedule import CallShape, plan

DEADLINE_SECONDS = 60.0


@pytest.mark.parametrize("size", (2, 3, 4))
def test_new_group(workers, size: int) -> None:
    workers.run(size, new_group_job)


@pytest.mark.parametrize("size", (2, 4))
def test_groups_without_a_meeting(workers, size: int) -> None:
    workers.run(size, no_meeting_job)


def test_a_group_that_a_member_does_not_make(workers) -> None:
    for message in workers.run(3, missing_member_job)[:2]:
        assert "rank 2" in message


def test_members_with_different_options(workers) -> None:
    for message in workers.run(2, different_options_job):
        assert "reproducible" in message


def test_configured_schedules_are_for_groups_of_their_size(workers) -> None:
    workers.run(3, configured_schedule_job)


def test_several_groups_at_once(workers) -> None:
    workers.run(4, crossing_groups_job)


@pytest.mark.parametrize("size", (2, 3, 4))
@pytest.mark.parametrize("job", ["split_job", "local_job"])
def test_other_ways_to_make_groups(workers, size: int, job: str) -> None:
    workers.run(size, globals()[job])


def test_groups_of_several_threads(workers) -> None:
    workers.run(3, threads_job)


@pytest.mark.parametrize("backend", ("weft", "cpu:weft"))
def test_backend_names(workers, backend: str) -> None:
    workers.run(2, names_job, backend=backend)


def test_dead_rank(workers) -> None:
    for message in workers.run(3, death_job, dying=[2]):
        assert "rank 2" in message


def test_dead_rank_during_backward(workers) -> None:
    for message in workers.run(3, death_in_backward_job, dying=[2]):
        assert "rank 2" in message


def test_dead_rank_of_some(workers) -> None:
    for message in workers.run(4, death_of_some_job, dying=[3]):
        if message:
            assert "(ranks 1, 3 of the world)" in message
            assert "rank 3 of the world" in message


def test_autoload() -> None:
    """The backend works in a program that never imports weft."""
    program = (
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('weft', store=dist.HashStore(), rank=0, world_size=1)\n"
        "x = torch.ones(3); dist.all_reduce(x); print(dist.get_backend(), x.tolist())\n"
        "dist.destroy_process_group()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "weft [1.0, 1.0, 1.0]\n"


def configured_schedule_job(rank: int, size: int) -> None:
    """A user's own algorithm is forced by configuration; a smaller group ignores it."""
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        path = Path(directory, "mine.txt")
        plan("two-shot", CallShape("all-reduce", ranks=size)).schedule.save(path)
        patch.setenv("WEFT_SCHEDULES", f"mine={path}")
        patch.setenv("WEFT_ALGORITHM", "all-reduce=mine")
        groups = [dist.new_group(list(range(ranks))) for ranks in (size, 2)]
    for group, ranks in zip(groups, (size, 2), strict=True):
        if rank < ranks:
            x = torch.ones(100)
            dist.all_reduce(x, group=group)
            assert x.tolist() == [ranks] * 100
            dist.destroy_process_group(group)


def new_group_job(rank: int, size: int) -> None:
    for members in ([0, 1], list(range(size)), [size - 1, 0]):
        group = dist.new_group(members)
        if rank in members:
            tensor = torch.tensor([float(rank)])
            dist.all_reduce(tensor, group=group)
            assert tensor.item() == sum(members)
            dist.broadcast(tensor.fill_(rank), src=max(members), group=group)
            assert tensor.item() == max(members)
            assert dist.get_world_size(group) == len(members)
            dist.destroy_process_group(group)
    dist.barrier()


def no_meeting_job(rank: int, size: int) -> None:
    """Groups of some of the ranks that have met are made without another meeting."""

    def refuse(*_arguments: object, **_named: object) -> None:
        raise AssertionError("the ranks meet again")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("weft.torch.groups.init", refuse)
        groups = [dist.new_group(ranks) for ranks in ([0, size - 1], None)]
    for group, ranks in zip(groups, ([0, size - 1], range(size)), strict=True):
        if rank in ranks:
            tensor = torch.tensor([float(rank)])
            dist.all_reduce(tensor, group=group)
            assert tensor.item() == sum(ranks)
            dist.monitored_barrier(group)
            dist.destroy_process_group(group)


def missing_member_job(rank: int, size: int) -> str:
    if rank == size - 1:
        return ""
    with pytest.raises(weft.Timeout) as failure:
        dist.new_group(list(range(size)), timeout=timedelta(seconds=1), use_local_synchronization=True)
    return str(failure.value)


def different_options_job(rank: int, _size: int) -> str:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(weft.ConfigError) as failure:
        patch.setenv("WEFT_REPRODUCIBLE", str(rank))
        dist.all_reduce(torch.ones(1), group=dist.new_group([0, 1]))
    return str(failure.value)


def crossing_groups_job(rank: int, size: int) -> None:
    pairs = [dist.new_group([first, first + 1]) for first in range(size - 1)]
    tensors = {}
    works = []
    for first, group in enumerate(pairs):
        if rank in (first, first + 1):
            tensors[first] = torch.full((50_000,), float(rank))
            works.append(dist.all_reduce(tensors[first], group=group, async_op=True))
    everywhere = torch.ones(10)
    dist.all_reduce(everywhere)
    for work in works:
        work.wait()
    for first, tensor in tensors.items():
        assert torch.equal(tensor, torch.full((50_000,), 2.0 * first + 1))
    assert everywhere.tolist() == [size] * 10


def split_job(rank: int, size: int) -> None:
    order = list(reversed(range(size)))
    everybody = dist.split_group(split_ranks=[order])
    assert dist.get_rank(everybody) == order.index(rank)
    halves = [order[: size // 2], order[size // 2 :]]
    half = dist.split_group(split_ranks=halves, timeout=timedelta(seconds=20))
    members = next(ranks for ranks in halves if rank in ranks)
    some = dist.split_group(split_ranks=[[0, size - 1]])
    none = dist.GroupMember.NON_GROUP_MEMBER
    assert (some == none) == (rank not in (0, size - 1))
    for group, ranks in ((everybody, order), (half, members), (some, [0, size - 1])):
        if group != none:
            tensor = torch.tensor([rank])
            dist.all_reduce(tensor, group=group)
            assert tensor.item() == sum(ranks)
            gathered = [torch.empty(1, dtype=torch.int64) for _ in ranks]
            dist.all_gather(gathered, torch.tensor([rank]), group=group)
            assert torch.cat(gathered).tolist() == ranks
            dist.monitored_barrier(group)
    dist.destroy_process_group(half)
    again = dist.split_group(everybody, split_ranks=[[0, 1]])
    if again != none:
        dist.barrier(again)


def local_job(rank: int, size: int) -> None:
    """Only the members call `new_group`."""
    for number in range(3):
        if rank != 0:
            members = list(range(1, size))
            group = dist.new_group(members, use_local_synchronization=True)
            tensor = torch.tensor([rank + number])
            dist.all_reduce(tensor, group=group)
            assert tensor.item() == sum(members) + number * len(members)
            if number == 1:
                dist.destroy_process_group(group)
    dist.barrier()


def threads_job(rank: int, size: int) -> None:
    groups = [dist.new_group(list(range(size))) for _ in range(4)]
    failures = []

    def work(number: int, group: dist.ProcessGroup) -> None:
        try:
            for step in range(50):
                tensor = torch.full((100 + 1000 * number,), float(rank + step))
                handle = dist.all_reduce(tensor, group=group, async_op=step % 3 == 0)
                if handle is not None:
                    handle.wait()
                assert tensor[0].item() == tensor[-1].item() == sum(range(size)) + step * size
                if step % 10 == 0:
                    dist.all_gather_object([None] * size, step, group=group)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=each) for each in enumerate(groups)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def names_job(_rank: int, size: int) -> None:
    assert "weft" in dist.distributed_c10d.get_backend_config()
    assert dist.group.WORLD._get_backend(torch.device("cpu")).name() == "weft"
    assert dist.is_backend_available("weft")
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [size] * 2


def death_job(rank: int, size: int) -> str:
    dist.all_reduce(torch.ones(10))
    let_others_come(rank, 2, range(size))
    if rank == 2:
        os._exit(1)
    with pytest.raises(Exception) as failure:
        for _ in range(1000):
            dist.all_reduce(torch.ones(10))
    assert type(failure.value).__name__ == "PeerLost"
    return str(failure.value)


def death_of_some_job(rank: int, size: int) -> str:
    """Rank 1 of a group of two dies, rank 3 of the world: the other's error has both numbers."""
    some = dist.new_group([1, 3])
    dist.all_reduce(torch.ones(10))
    let_others_come(rank, 3, range(size))
    if rank == 3:
        dist.all_reduce(torch.ones(10), group=some)
        os._exit(1)
    if rank != 1:
        return ""
    with pytest.raises(weft.PeerLost) as failure:
        for _ in range(1000):
            dist.all_reduce(torch.ones(10), group=some)
    return str(failure.value)


def death_in_backward_job(rank: int, size: int) -> str:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    model(torch.ones(2, 4)).sum().backward()
    let_others_come(rank, 2, range(size))
    if rank == 2:
        os._exit(1)
    with pytest.raises(Exception) as failure:
        for _ in range(1000):
            model(torch.ones(2, 4)).sum().backward()
    assert isinstance(failure.value, weft.PeerLost)
    assert failure.value.rank == 2
    return str(failure.value)
