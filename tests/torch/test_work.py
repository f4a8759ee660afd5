"""Handles, futures and errors of operations."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import weft


@pytest.mark.parametrize("size", (1, 2, 4))
@pytest.mark.parametrize("job", ["order_job", "callback_job", "blocking_callback_job", "dropped_job", "shutdown_job"])
def test_work(workers, size: int, job: str) -> None:
    workers.run(size, globals()[job])


def test_wait_with_timeout(workers) -> None:
    workers.run(2, timeout_job)


def test_wrong_arguments(workers) -> None:
    workers.run(2, arguments_job)


def order_job(rank: int, size: int) -> None:
    """Handles are waited for in any order, and more than once."""
    tensors = [torch.full((length,), float(rank)) for length in (5, 70_000, 1, 300)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for index in (2, 0, 3, 1, 1):
        assert works[index].wait()
        assert torch.equal(tensors[index], torch.full_like(tensors[index], float(sum(range(size)))))
    assert dist.barrier(async_op=True).wait()


def callback_job(_rank: int, size: int) -> None:
    main = threading.get_ident()
    futures = [dist.all_reduce(torch.full((1000,), 1.0), async_op=True).get_future() for _ in range(10)]
    doubled = [future.then(lambda done: (done.value()[0] * 2, threading.get_ident())) for future in futures]
    for future in torch.futures.wait_all(doubled):
        assert torch.equal(future[0], torch.full((1000,), 2.0 * size))
    work = dist.all_reduce(torch.ones(3), async_op=True)
    work.wait()
    assert work.get_future().wait()[0].tolist() == [size] * 3
    assert threading.get_ident() == main


def blocking_callback_job(rank: int, size: int) -> None:
    """A callback may wait for another operation, as PowerSGD's does, also through that operation's future."""

    def then_more(done: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
        tensor = done.value()[0] + rank
        return dist.all_reduce(tensor, async_op=True).get_future().wait()[0]

    first = dist.all_reduce(torch.ones(4), async_op=True).get_future()
    total = first.then(then_more).wait()
    assert total.tolist() == [size * size + sum(range(size))] * 4


def dropped_job(_rank: int, size: int) -> None:
    """An operation goes on, and its memory stays, when nobody keeps the handle or the tensor."""
    for _ in range(50):
        dist.all_reduce(torch.ones(5000), async_op=True)
        torch.empty(5000).fill_(float("nan"))
    tensor = torch.ones(5000)
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.full((5000,), float(size)))


def shutdown_job(rank: int, size: int) -> None:
    """A group ends and another begins, with the same store."""
    store = dist.distributed_c10d._get_default_store()
    for _ in range(3):
        dist.destroy_process_group()
        dist.init_process_group("weft", store=store, rank=rank, world_size=size)
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [size] * 3


def timeout_job(rank: int, _size: int) -> None:
    tensor = torch.ones(3)
    if rank == 0:
        work = dist.all_reduce(tensor, async_op=True)
        with pytest.raises(weft.StillRunning):
            work.wait(timedelta(milliseconds=50))
        dist.send(torch.zeros(1), 1)
        work.wait()
    else:
        dist.recv(torch.zeros(1), 0)
        dist.all_reduce(tensor)
    assert tensor.tolist() == [2.0] * 3


def arguments_job(_rank: int, _size: int) -> None:
    def refused(text: str, call, *arguments, **more) -> None:
        with pytest.raises(weft.Error, match=text):
            call(*arguments, **more)

    refused("6 elements: expected 4", dist.all_gather_into_tensor, torch.empty(6), torch.ones(2))
    refused("3 tensors: expected 2", dist.all_gather, [torch.empty(2)] * 3, torch.ones(2))
    refused("split sizes", dist.all_to_all_single, torch.empty(4), torch.ones(4), [3, 3], [2, 2])
    refused("float64", dist.all_gather_into_tensor, torch.empty(4, dtype=torch.float64), torch.ones(2))
    tensor = torch.ones(2)
    dist.all_reduce(tensor)  # nothing of the above has reached the other rank
    assert tensor.tolist() == [2.0, 2.0]
