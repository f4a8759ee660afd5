"""Tests of many process groups in one process: memory and descriptors, and their release."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from weft.bootstrap import endpoints

PAGES_OF_A_GROUP = 32
"""More than a group of two takes for operations of a few bytes of any kind."""
DEADLINE_SECONDS = 20.0


def test_groups_take_memory_when_they_are_used(workers) -> None:
    workers.run(2, first_use_job)


def test_many_groups_live_with_few_descriptors(workers) -> None:
    workers.run(2, live_job)


@pytest.mark.parametrize("size", (2, 3, 4))
def test_overlapping_groups_made_repeatedly_in_any_order(workers, size: int) -> None:
    workers.run(size, overlapping_job)


def first_use_job(rank: int, size: int) -> None:
    """Nothing at first, then as much as operations need, smaller ones less."""
    dist.barrier()
    used = [pool_used_together()]
    group = dist.new_group(list(range(size)))
    used.append(pool_used_together())
    uses: list[Callable[[], object]] = [
        lambda: dist.all_reduce(torch.ones(1), group=group),
        lambda: [dist.all_reduce(torch.ones(1), group=group, async_op=True).wait() for _ in range(8)],
        lambda: [dist.all_reduce(torch.ones(100), group=group) for _ in range(8)],
        lambda: dist.all_reduce(torch.ones(1 << 20), group=group),
    ]
    for use in uses:
        use()
        used.append(pool_used_together())
    none, made, few, background, more, large = (bytes_ - used[0] for bytes_ in used)
    assert none == made == 0
    assert 0 < few <= background <= more <= PAGES_OF_A_GROUP * 4096 < large, used
    for _ in range(3):
        dist.all_reduce(torch.ones(1 << 20), group=group)
    settled = pool_used_together()
    for _ in range(3):
        for use in uses:
            use()
    assert pool_used_together() == settled, "operations take memory each time"
    exchange(rank, group, 1 << 20)
    close([group])
    wait_until_used(used[0])


def live_job(rank: int, size: int) -> None:
    """As many as once took all of the pool, and none of the descriptors that are left."""
    dist.barrier()
    used, limits = pool_used(), resource.getrlimit(resource.RLIMIT_NOFILE)
    descriptors = open_descriptors()
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors + 8, limits[1]))
    try:
        groups = [dist.new_group(list(range(size))) for _ in range(200)]
        for number, group in enumerate(groups):
            ones = torch.full((1,), float(rank + number))
            dist.all_reduce(ones, group=group)
            assert ones.item() == 2 * number + 1
        assert pool_used() - used <= 200 * PAGES_OF_A_GROUP * 4096
        assert open_descriptors() <= descriptors + 8
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    close(groups)
    wait_until_used(used)


def overlapping_job(rank: int, size: int) -> None:
    """Groups of several sizes with common members; all ranks draw the same numbers."""
    dist.barrier()
    chance, used = random.Random(7), pool_used()
    descriptors = open_descriptors()
    for _ in range(3):
        members = [sorted(chance.sample(range(size), chance.randint(2, size))) for _ in range(8)]
        groups = [dist.new_group(ranks) for ranks in members]
        order = [number for number in range(8) for _ in range(3)]
        chance.shuffle(order)
        for number in order:
            elements, first = chance.choice([1, 100, 5000, 300_000]), chance.random()
            if rank in members[number]:
                use(groups[number], members[number], elements, first)
        chance.shuffle(order)
        close([groups[number] for number in dict.fromkeys(order) if rank in members[number]])
        dist.barrier()
        wait_until_used(used)
    # Links to ranks that were no neighbours before stay.
    assert open_descriptors() <= descriptors + 4 * size


def use(group: dist.ProcessGroup, members: list[int], elements: int, first: float) -> None:
    """One of several operations on this many elements."""
    tensor = torch.full((elements,), float(dist.get_rank(group)))
    expected = float(sum(range(len(members))))
    if first < 0.3:
        dist.all_reduce(tensor, group=group)
    elif first < 0.6:
        work = dist.all_reduce(tensor, group=group, async_op=True)
        assert work is not None
        work.wait()
    elif first < 0.8:
        dist.broadcast(tensor, src=members[-1], group=group)
        expected = len(members) - 1.0
    else:
        exchange(dist.get_rank(group), group, elements)
        return
    assert torch.equal(tensor, torch.full((elements,), expected))


def exchange(rank: int, group: dist.ProcessGroup, elements: int) -> None:
    """Rank 0 of the group sends to rank 1."""
    tensor = torch.full((elements,), float(rank))
    if rank == 0:
        dist.send(tensor, group=group, group_dst=1)
    if rank == 1:
        dist.recv(tensor, group=group, group_src=0)
        assert torch.equal(tensor, torch.zeros(elements))


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def pool_used() -> int:
    return endpoints.pool_bytes()[0]


def pool_used_together() -> int:
    """Returns the memory in use while no rank continues: one that does makes others grant
    memory.
    """
    dist.barrier()
    used = pool_used()
    dist.barrier()
    return used


def close(groups: list[dist.ProcessGroup]) -> None:
    for group in groups:
        dist.destroy_process_group(group)


def wait_until_used(expected: int) -> None:
    """Memory of a group is returned when the others have left it as well."""
    until = time.monotonic() + DEADLINE_SECONDS
    while pool_used() > expected and time.monotonic() < until:
        time.sleep(0.01)
    assert pool_used() == expected
    dist.barrier()
