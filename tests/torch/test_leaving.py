"""Ranks that leave, in order or not, while operations are in flight that were never awaited."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from drawn import drawn

from weft.processes.ports import free_ports

DEADLINE_S = 60
PROGRAM = """
import os, signal, sys, time
import torch, torch.distributed as dist
import weft, weft.torch

way, elements = sys.argv[1], int(sys.argv[2])
dist.init_process_group("weft")
rank, store = dist.get_rank(), dist.distributed_c10d._get_default_store()
sums = [torch.full((elements,), float(rank + 1)) for _ in range(3)]
message = torch.full((elements,), 7.0)
dist.all_reduce(sums[0])
if rank == 1:
    works = [dist.all_reduce(one, async_op=True) for one in sums[1:]]
    works.append(dist.isend(message, 0))
    store.set("leaves", "")
    if way == "destroy":
        dist.destroy_process_group()
    elif way == "exit":
        sys.exit(3)
    elif way == "exception":
        raise RuntimeError("a mistake")
    elif way == "signal":
        os.kill(os.getpid(), signal.SIGKILL)
else:
    store.wait(["leaves"])
    began = time.monotonic()
    try:
        for one in sums[1:]:
            dist.all_reduce(one)
        message.zero_()
        dist.recv(message, 1)
        right = all((one == 3).all() for one in sums) and (message == 7).all()
        print("right" if right else "wrong", flush=True)
    except weft.PeerLost as error:
        print(f"{time.monotonic() - began:.2f} {error}", flush=True)
        os._exit(0)
"""

CYCLES = 12
AGAIN = f"""
import torch, torch.distributed as dist
import weft.torch

for _ in range({CYCLES}):
    dist.init_process_group("weft")
    dist.all_reduce(torch.ones(10))
    dist.destroy_process_group()
"""


def run(way: str, transport: str, elements: int) -> str:
    """Returns the output of rank 0 of two."""
    ranks = start([PROGRAM, way, str(elements)], transport)
    try:
        return ranks[0].communicate(timeout=DEADLINE_S)[0]
    finally:
        end(ranks)


def start(program: list[str], transport: str) -> list[subprocess.Popen[str]]:
    """Two ranks of a program with its arguments."""
    port = free_ports(1)[0]
    variables = {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
        "WEFT_TRANSPORT": transport,
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    }
    return [
        subprocess.Popen(
            [sys.executable, "-c", *program],
            env={**os.environ, **variables, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if rank else None,
            text=True,
        )
        for rank in range(2)
    ]


def end(ranks: list[subprocess.Popen[str]]) -> None:
    """Ends them."""
    for rank in ranks:
        rank.kill()
        rank.wait()


@pytest.mark.parametrize("way", drawn(["destroy", "end", "exit"], 1))
@pytest.mark.parametrize(("transport", "elements"), [("shm", 10), ("tcp", 3_000_000)])
def test_orderly_exit_completes_issued_operations(way: str, transport: str, elements: int) -> None:
    assert run(way, transport, elements) == "right\n"


@pytest.mark.parametrize("way", drawn(["exception", "signal"], 1))
@pytest.mark.parametrize(("transport", "elements"), [("shm", 3_000_000), ("tcp", 3_000_000)])
def test_failing_rank_completes_nothing_and_is_reported(way: str, transport: str, elements: int) -> None:
    seconds, error = run(way, transport, elements).split(maxsplit=1)
    assert "rank 1" in error
    assert float(seconds) < 5


def test_ranks_meet_at_one_port_again_and_again() -> None:
    ranks = start([AGAIN], "shm")
    try:
        assert [rank.wait(DEADLINE_S) for rank in ranks] == [0, 0]
    finally:
        end(ranks)
