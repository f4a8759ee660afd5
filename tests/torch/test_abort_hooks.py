"""Tests of functions that run when a group fails or is aborted."""

from __future__ import annotations

import os
import threading
import time

import pytest
import torch
import torch.distributed as dist
from deaths import let_others_come
from torch.distributed import ProcessGroup

import weft
from weft.torch.lookup import backend_of

pytestmark = pytest.mark.skipif(not hasattr(ProcessGroup, "register_abort_hook"), reason="torch 2.15 and newer")


def test_hooks_of_a_dead_rank(workers) -> None:
    workers.run(3, death_job, dying=[2])


def test_hooks_of_an_abort(workers) -> None:
    workers.run(2, abort_job)


def test_waiting_for_hooks_that_run(workers) -> None:
    workers.run(1, waiting_job)


def test_other_backends(workers) -> None:
    workers.run(1, other_backend_job, backend="gloo")


def death_job(rank: int, _size: int) -> None:
    group = dist.group.WORLD
    assert group.supports_abort_hooks
    ran = []
    failed = threading.Event()
    group.register_abort_hook(2, failed.set)
    group.register_abort_hook(1, lambda: ran.append(rank))
    group.register_abort_hook(0, lambda: ran.append("removed"))
    group.unregister_abort_hook(0)
    let_others_come(rank, 2, range(2))
    if rank == 2:
        os._exit(1)
    with pytest.raises(weft.PeerLost):
        while True:
            dist.all_reduce(torch.ones(1000))
    assert failed.wait(10)
    assert ran == [rank]
    group.abort()
    assert ran == [rank]


def abort_job(rank: int, _size: int) -> None:
    group = dist.group.WORLD
    seen = []
    done = threading.Event()
    work = dist.irecv(torch.ones(1), 1 - rank)

    def wrong() -> None:
        raise ValueError("a hook that fails")

    group.register_abort_hook(0, wrong)
    group.register_abort_hook(1, lambda: seen.append(work.is_completed()))
    group.register_abort_hook(2, done.set)
    dist.barrier()  # both have begun the operation
    if rank == 0:
        group.abort()
        assert seen == [False]  # the operation was still under way
    with pytest.raises(weft.Aborted):
        work.wait()
    assert done.wait(10)
    assert len(seen) == 1


def waiting_job(_rank: int, _size: int) -> None:
    hooks = backend_of(None)._abort_hooks
    started, written = threading.Event(), []

    def slow() -> None:
        started.set()
        time.sleep(0.2)
        hooks.run()  # as a hook that aborts the group
        written.append("all")

    hooks.register(0, slow)
    thread = threading.Thread(target=hooks.run)
    thread.start()
    assert started.wait(10)
    hooks.run()
    assert written == ["all"]
    thread.join()


def other_backend_job(_rank: int, _size: int) -> None:
    assert dist.group.WORLD.supports_abort_hooks is False
