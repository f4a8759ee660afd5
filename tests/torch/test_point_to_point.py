"""Tests of point-to-point messages through torch.distributed."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

import weft
import weft.torch


@pytest.mark.parametrize("size", (2, 3, 4))
@pytest.mark.parametrize(
    "job",
    [
        "ring_job",
        "tags_job",
        "strided_job",
        "registered_job",
        "unwaited_sends_job",
        "any_source_job",
        "poll_job",
        "batch_job",
        "object_job",
    ],
)
def test_messages(workers, size: int, job: str) -> None:
    workers.run(size, globals()[job])


def ring_job(rank: int, size: int) -> None:
    following, previous = (rank + 1) % size, (rank - 1) % size
    for length in (0, 1, 300_000):
        received = torch.empty(length)
        if rank == 0:
            dist.send(torch.full((length,), float(rank)), following)
            assert dist.recv(received, previous) == previous
        else:
            assert dist.recv(received, previous) == previous
            dist.send(torch.full((length,), float(rank)), following)
        assert torch.equal(received, torch.full((length,), float(previous)))


def tags_job(rank: int, _size: int) -> None:
    """Messages of different tags may be received in any order."""
    if rank == 0:
        works = [dist.isend(torch.tensor([tag]), 1, tag=tag) for tag in range(5)]
        for work in works:
            work.wait()
    elif rank == 1:
        for tag in reversed(range(5)):
            received = torch.tensor([-1])
            dist.recv(received, 0, tag=tag)
            assert received.item() == tag
    dist.barrier()


def registered_job(rank: int, size: int) -> None:
    """A handle makes no difference where no adapter is used."""
    tensor, received = torch.full((300_000,), float(rank)), torch.empty(300_000)
    with weft.torch.register(tensor) as handle:
        assert (handle.transports, handle.refusal) == ([], None)
        sending = dist.isend(tensor, (rank + 1) % size)
        dist.recv(received, (rank - 1) % size)
        sending.wait()
    assert (received == (rank - 1) % size).all()
    with pytest.raises(weft.ArgumentError, match="not contiguous"):
        weft.torch.register(torch.zeros(3, 4).t())


def strided_job(rank: int, _size: int) -> None:
    matrix = torch.arange(12.0).view(3, 4)
    if rank == 0:
        dist.send(matrix.t(), 1)
    elif rank == 1:
        received = torch.zeros(3, 4).t()
        dist.recv(received, 0)
        assert torch.equal(received, matrix.t())


def unwaited_sends_job(rank: int, _size: int) -> None:
    """The memory of a message stays until it is sent, even if the caller drops everything."""
    if rank == 0:
        for number in range(20):
            dist.isend(torch.full((10_000,), float(number)), 1)
    elif rank == 1:
        for number in range(20):
            received = torch.empty(10_000)
            dist.recv(received, 0)
            assert torch.equal(received, torch.full((10_000,), float(number)))
    dist.barrier()


def any_source_job(rank: int, size: int) -> None:
    """The sender is known, after waiting and after polling."""
    if rank == 0:
        for receive in (waited, polled, with_recv):
            senders = [receive(torch.tensor([-1]), 3) for _ in range(size - 1)]
            assert sorted(senders) == list(range(1, size))
            dist.barrier()
        received = torch.empty(0)
        assert dist.recv(received) in range(1, size)  # zero bytes, of which the others' are left for the next round
        for _ in range(size - 2):
            dist.recv(received)
    else:
        for _ in range(3):
            dist.send(torch.tensor([rank]), 0, tag=3)
            dist.barrier()
        dist.send(torch.empty(0), 0)


def waited(received: torch.Tensor, tag: int) -> int:
    work = dist.irecv(received, tag=tag)
    work.wait()
    assert work._source_rank() == work.source_rank() == received.item()
    return received.item()


def polled(received: torch.Tensor, tag: int) -> int:
    work = dist.irecv(received, tag=tag)
    while not work.is_completed():
        pass
    assert work.is_success()
    assert work.source_rank() == received.item()
    return received.item()


def with_recv(received: torch.Tensor, tag: int) -> int:
    source = dist.recv(received, tag=tag)
    assert source == received.item()
    return source


def poll_job(rank: int, size: int) -> None:
    """Works are polled in any order, and their results are there once they have ended."""
    following, previous = (rank + 1) % size, (rank - 1) % size
    received = [torch.full((3, 5), -1.0).t() for _ in range(4)]  # not contiguous
    works = [dist.irecv(tensor, previous, tag=tag) for tag, tensor in enumerate(received)]
    assert not any(work.is_completed() for work in works)
    dist.barrier()
    sends = [dist.isend(torch.full((5, 3), float(tag)), following, tag=tag) for tag in reversed(range(4))]
    left = works + sends
    while left:
        left = [work for work in reversed(left) if not work.is_completed()]
    for tag, tensor in enumerate(received):
        assert torch.equal(tensor, torch.full((5, 3), float(tag)))
    for work in works + sends:
        assert work.wait()
        assert work.exception() is None


def batch_job(rank: int, size: int) -> None:
    following, previous = (rank + 1) % size, (rank - 1) % size
    received = torch.empty(1000)
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.irecv, received, previous),
            dist.P2POp(dist.isend, torch.full((1000,), float(rank)), following),
        ]
    )
    for work in works:
        work.wait()
    assert torch.equal(received, torch.full((1000,), float(previous)))


def object_job(rank: int, _size: int) -> None:
    if rank == 0:
        dist.send_object_list(["text", 3], dst=1)
    elif rank == 1:
        received = [None, None]
        dist.recv_object_list(received, src=0)
        assert received == ["text", 3]
