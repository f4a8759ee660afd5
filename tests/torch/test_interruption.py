"""Tests that Ctrl-C ends every wait for a rank that does not come."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

import weft.torch

BEFORE_SECONDS = 0.3
"""From the call to Ctrl-C. Should the call have ended by then, the test fails."""
ANSWER_SECONDS_MAX = 3.0
DONE = "rank 0 is done"


def _model() -> torch.nn.Module:
    return torch.nn.Linear(3, 2)


def _future() -> torch.futures.Future[object]:
    return dist.all_reduce(torch.ones(3), async_op=True).get_future()


WAITS: dict[str, Callable[[], object]] = {
    "all_reduce": lambda: dist.all_reduce(torch.ones(3)),
    "wait": lambda: dist.all_reduce(torch.ones(3), async_op=True).wait(),
    "strided": lambda: dist.all_reduce(torch.ones(3, 2)[:, 0]),
    "future of a future": lambda: _future().then(lambda done: done.value()).wait(),
    "futures": lambda: torch.futures.wait_all([_future()]),
    "future": lambda: _future().wait(),
    "recv": lambda: dist.recv(torch.ones(3), 1),
    "recv from any": lambda: dist.recv(torch.ones(3)),
    "send": lambda: dist.send(torch.ones(1 << 22), 1),
    "barrier": lambda: dist.barrier(),
    "monitored_barrier": lambda: dist.monitored_barrier(),
    "objects": lambda: dist.all_gather_object([None, None], 3),
    "new_group": lambda: dist.new_group(),
    "empty_symmetric": lambda: weft.torch.empty_symmetric(8),
    "broadcast_parameters": lambda: weft.torch.broadcast_parameters(_model(), "average"),
    "shrink": lambda: weft.torch.shrink(),
    "DataParallel": lambda: weft.torch.DataParallel(_model()),
    "DistributedDataParallel": lambda: torch.nn.parallel.DistributedDataParallel(_model()),
}


@pytest.mark.parametrize("name", WAITS)
def test_ctrl_c(workers, name: str) -> None:
    workers.run(2, interrupted_job, name)


def test_ctrl_c_while_rank_0_is_missing(workers) -> None:
    """As in `monitored_barrier`, where the ranks do different things."""
    workers.run(2, interrupted_job, "monitored_barrier", 1)


def interrupted_job(rank: int, _size: int, name: str, interrupted: int = 0) -> None:
    dist.barrier()  # connections are made
    store = dist.distributed_c10d._get_default_store()
    if rank != interrupted:
        store.wait([DONE])
        return
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(BEFORE_SECONDS, os.kill, [os.getpid(), signal.SIGINT])
    try:
        timer.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            WAITS[name]()
        assert time.monotonic() - began < BEFORE_SECONDS + ANSWER_SECONDS_MAX
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, handler)
        store.set(DONE, "")
