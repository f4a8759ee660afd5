"""Tests of `enable_reconfigure=True`: process groups whose members are named later."""

from __future__ import annotations

import inspect
import os
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import ErrorType
from torch.distributed import distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel

import weft

pytestmark = pytest.mark.skipif(
    "enable_reconfigure" not in inspect.signature(dist.init_process_group).parameters, reason="torch 2.15"
)
WAIT = timedelta(seconds=20)


@pytest.mark.parametrize("backend", ("weft", "gloo"))
def test_members_come_and_go(workers, tmp_path, backend: str) -> None:
    workers.run(3, changing_job, str(tmp_path / "store"), backend)


def test_survivors(workers, tmp_path) -> None:
    workers.run(3, death_job, str(tmp_path / "store"), dying=[0])


def test_group_is_usable_again_after_abort_and_timeout(workers, tmp_path) -> None:
    workers.run(3, failing_job, str(tmp_path / "store"))


def test_every_member_leaves_once_and_comes_back(workers, tmp_path) -> None:
    workers.run(3, rejoining_job, str(tmp_path / "store"))


def test_wrong_calls(workers, tmp_path) -> None:
    workers.run(2, wrong_job, str(tmp_path / "store"))


def begin(rank: int, size: int, path: str, backend: str = "weft") -> list[str]:
    """Makes a default group without members; returns the handles of all ranks."""
    meeting = c10d._get_default_store()
    dist.destroy_process_group()
    store = dist.FileStore(path, size)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=WAIT, enable_reconfigure=True)
    assert c10d._supports_reconfigure()
    return exchange(meeting, rank, size, 0)


def exchange(meeting: dist.Store, rank: int, size: int, step: int) -> list[str]:
    """The handles of all ranks: Gloo's differ after each call."""
    meeting.set(f"handle {step} {rank}", c10d._get_reconfigure_handle())
    return [meeting.get(f"handle {step} {other}").decode() for other in range(size)]


def check(rank: int, size: int) -> None:
    assert (dist.get_rank(), dist.get_world_size()) == (rank, size)
    tensor = torch.tensor([float(rank)])
    dist.all_reduce(tensor)
    assert tensor.item() == sum(range(size))
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(3, 2))
    model(torch.full((1, 3), float(rank))).sum().backward()
    assert torch.equal(model.module.weight.grad, torch.full((2, 3), (size - 1) / 2))


def changing_job(rank: int, size: int, path: str, backend: str) -> None:
    meeting = c10d._get_default_store()
    handles = begin(rank, size, path, backend)
    if rank < 2:
        c10d._reconfigure(uuid=1, handles=handles[:2]).wait()
        check(rank, 2)
    handles = exchange(meeting, rank, size, 1)
    c10d._reconfigure(uuid=2, handles=handles[::-1]).wait()
    check(2 - rank, 3)
    handles = exchange(meeting, rank, size, 2)
    if rank > 0:
        c10d._reconfigure(uuid=3, handles=set(handles[1:])).wait()
        check(sorted(handles[1:]).index(handles[rank]), 2)


def death_job(rank: int, size: int, path: str) -> None:
    meeting = c10d._get_default_store()
    handles = begin(rank, size, path)
    c10d._reconfigure(uuid=1, handles=handles).wait()
    check(rank, size)
    if rank == 0:
        meeting.wait([f"{other} is here" for other in (1, 2)])
        os._exit(1)
    meeting.set(f"{rank} is here", "")
    with pytest.raises(weft.PeerLost):
        while True:
            dist.all_reduce(torch.ones(1000))
    with pytest.raises(weft.Timeout):
        c10d._reconfigure(uuid=2, handles=handles, timeout=timedelta(seconds=1))
    c10d._reconfigure(uuid=3, handles=handles[1:]).wait()
    check(rank - 1, 2)


def failing_job(rank: int, size: int, path: str) -> None:
    meeting = c10d._get_default_store()
    handles = begin(rank, size, path)
    c10d._reconfigure(uuid=1, handles=handles).wait()
    backend = dist.get_backend_impl(c10d._get_default_group(), torch.device("cpu"))
    assert backend.supports_reconfigure
    exchange(meeting, rank, size, 1)  # an abort would end the others' call otherwise
    backend.abort()
    assert backend.get_error() == ErrorType.COMM_ERROR
    exchange(meeting, rank, size, 2)
    c10d._reconfigure(uuid=2, handles=handles).wait()
    assert backend.get_error() == ErrorType.SUCCESS
    check(rank, size)
    if rank == 1:
        backend.set_timeout(timedelta(milliseconds=50))
        with pytest.raises(weft.Timeout):
            dist.all_reduce(torch.ones(4))
        assert backend.get_error() == ErrorType.TIMEOUT
        backend.set_timeout(WAIT)
    exchange(meeting, rank, size, 3)
    c10d._reconfigure(uuid=3, handles=handles).wait()
    check(rank, size)
    received = torch.zeros(4)
    works = [
        backend.send([torch.full((4,), float(rank))], (rank + 1) % size, 0),
        backend.recv([received], (rank - 1) % size, 0),
    ]
    for work in works:
        work.wait()
    assert received.tolist() == [float((rank - 1) % size)] * 4


def rejoining_job(rank: int, size: int, path: str) -> None:
    meeting = c10d._get_default_store()
    handles = begin(rank, size, path)
    for uuid in range(0, 2 * size, 2):
        absent = handles[uuid // 2]
        others = [handle for handle in handles if handle != absent]
        if handles[rank] != absent:
            c10d._reconfigure(uuid=uuid, handles=others).wait()
            check(others.index(handles[rank]), size - 1)
        exchange(meeting, rank, size, uuid + 1)
        c10d._reconfigure(uuid=uuid + 1, handles=[*others, absent]).wait()
        check([*others, absent].index(handles[rank]), size)


def wrong_job(rank: int, size: int, path: str) -> None:
    handles = begin(rank, size, path)
    with pytest.raises(weft.ConfigError, match=r"reconfigure\(\) before operations"):
        dist.all_reduce(torch.ones(1))
    with pytest.raises(weft.ArgumentError, match="is not among the 1 given"):
        c10d._reconfigure(uuid=1, handles=[handles[1 - rank]])
    with pytest.raises(weft.ArgumentError, match="twice"):
        c10d._reconfigure(uuid=1, handles=[handles[rank]] * 2)
    c10d._reconfigure(uuid=1, handles=handles).wait()
    with pytest.raises(weft.ArgumentError, match="uuid=1 was already used"):
        c10d._reconfigure(uuid=1, handles=handles)
    check(rank, size)
