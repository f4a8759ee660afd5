"""Handles, futures and errors of operations."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import weft
from weft.torch.lookup import backend_of


@pytest.mark.parametrize("size", (1, 2, 4))
@pytest.mark.parametrize(
    "job",
    [
        "order_job",
        "poll_job",
        "callback_job",
        "blocking_callback_job",
        "nested_callbacks_job",
        "hook_job",
        "dropped_job",
        "shutdown_job",
    ],
)
def test_work(workers, size: int, job: str) -> None:
    workers.run(size, globals()[job])


def test_wait_with_timeout(workers) -> None:
    workers.run(2, timeout_job)


def test_thread_of_callbacks(workers) -> None:
    workers.run(2, thread_job)


def test_facts(workers) -> None:
    workers.run(2, facts_job)


def test_failed_work(workers) -> None:
    workers.run(2, failure_job)


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


def facts_job(rank: int, _size: int) -> None:
    """A handle's information about its operation."""
    first, second = dist.all_reduce(torch.ones(3), async_op=True), dist.broadcast(torch.ones(3), 0, async_op=True)
    assert (first._get_sequence_number(), second._get_sequence_number()) == (1, 2)
    message = dist.isend(torch.ones(3), 1) if rank == 0 else dist.irecv(torch.ones(3), 0)
    for work in (first, second, message):
        assert work.timeout == timedelta(seconds=30)  # the pool's
        assert work.wait()
    short = dist.new_group(timeout=timedelta(seconds=7))
    assert dist.barrier(short, async_op=True).timeout == timedelta(seconds=7)


def poll_job(rank: int, size: int) -> None:
    """Polling alone brings an operation to its end, and its results to where they belong."""
    for call, inputs in ((dist.all_reduce, ()), (dist.reduce_scatter_tensor, (torch.ones(size, 6, 5),))):
        tensor = torch.ones(5, 6).t()  # not contiguous
        work = call(tensor, *inputs, async_op=True)
        while not work.is_completed():
            pass
        assert work.is_success()
        assert torch.equal(tensor, torch.full((6, 5), float(size)))
    work = dist.barrier(async_op=True)
    while not work.is_completed():
        pass
    with dist._coalescing_manager(async_ops=True) as manager:
        tensors = [torch.full((length,), float(rank)) for length in (3, 0, 1000)]
        for tensor in tensors:
            dist.all_reduce(tensor)
    assert len(manager.works) == 1
    while not manager.works[0].is_completed():
        pass
    assert all(torch.equal(tensor, torch.full_like(tensor, sum(range(size)))) for tensor in tensors)


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
    """A callback may wait for another operation, as PowerSGD's does, also through that operation's
    future.
    """

    def then_more(done: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
        tensor = done.value()[0] + rank
        return dist.all_reduce(tensor, async_op=True).get_future().wait()[0]

    first = dist.all_reduce(torch.ones(4), async_op=True).get_future()
    total = first.then(then_more).wait()
    assert total.tolist() == [size * size + sum(range(size))] * 4


def nested_callbacks_job(_rank: int, size: int) -> None:
    """Callbacks of many operations, each of which waits for one that was started before, on the
    same group.
    """
    pairs = [[dist.all_reduce(torch.ones(100), async_op=True) for _ in range(2)] for _ in range(12)]
    chained = [
        first.get_future().then(lambda done, other=second: done.value()[0] + other.get_future().wait()[0])
        for first, second in pairs
    ]
    for future in reversed(chained):
        assert torch.equal(future.wait(), torch.full((100,), 2.0 * size))


def thread_job(rank: int, _size: int) -> None:
    """Callbacks run on threads that weft keeps for them."""
    if rank == 0:
        future = dist.all_reduce(torch.ones(1), async_op=True).get_future()
        name = future.then(lambda _: threading.current_thread().name)
        dist.send(torch.zeros(1), 1)
        assert name.wait().startswith("weft-completion")
    else:
        dist.recv(torch.zeros(1), 0)
        dist.all_reduce(torch.ones(1))


def hook_job(_rank: int, size: int) -> None:
    """Gradient hooks that start operations and wait for their futures, in the middle of a backward
    pass.
    """
    weights = [torch.ones(4, requires_grad=True) for _ in range(3)]

    def summed(gradient: torch.Tensor) -> torch.Tensor:
        total = gradient.clone()
        return dist.all_reduce(total, async_op=True).get_future().then(lambda done: done.value()[0] * 2).wait()

    for weight in weights:
        weight.register_hook(summed)
    (weights[0] * weights[1] * weights[2]).sum().backward()
    for weight in weights:
        assert weight.grad.tolist() == [2 * size] * 4


def dropped_job(_rank: int, size: int) -> None:
    """An operation continues, and its memory stays, when handle and tensor are dropped."""
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


def failure_job(rank: int, size: int) -> None:
    """Every query reports the failure with weft's type; a future's own wait has torch's, and the
    text.
    """
    group = dist.new_group(list(range(size)))
    backend_of(group).set_timeout(timedelta(seconds=0.3))
    if rank == 0:
        work = dist.all_reduce(torch.ones(3), group=group, async_op=True)
        future = work.get_future().then(lambda done: done.value())
        while not work.is_completed():
            pass
        assert not work.is_success()
        assert isinstance(work.exception(), weft.Timeout)
        with pytest.raises(weft.Timeout, match="all-reduce"):
            work.wait()
        with pytest.raises(RuntimeError, match="Timeout"):
            future.wait()
        with pytest.raises(weft.Timeout):
            dist.all_reduce(torch.ones(3), group=group)
    dist.barrier()


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
