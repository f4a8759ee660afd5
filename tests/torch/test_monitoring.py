"""Tests of torch's diagnostics of stalled jobs: monitored barrier, debug mode, timeouts, server."""

from __future__ import annotations

import contextlib
import html
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import weft
from weft.observability import live_status
from weft.processes.ports import free_ports


@pytest.mark.parametrize("size", (1, 2, 4))
def test_monitored_barrier(workers, size: int) -> None:
    workers.run(size, barrier_job)


@pytest.mark.parametrize("missing", ([1], [1, 3], [0]))
def test_missing_ranks(workers, missing: list[int]) -> None:
    messages = workers.run(4, missing_job, missing)
    expected = f"rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))} "
    for rank, message in enumerate(messages):
        assert rank in missing or expected in message


def test_timeout_of_nothing_ends_at_once(workers) -> None:
    workers.run(2, impatient_job)


@pytest.mark.parametrize("size", (1, 2, 3))
def test_debug_detail(workers, size: int) -> None:
    workers.run(size, detail_job)


def test_debug_detail_finds_differences(workers) -> None:
    workers.run(2, differences_job)


def test_debug_server_shows_the_job(workers) -> None:
    pytest.importorskip("torch.distributed.debug._frontend", reason="torch 2.14 has the debug server")
    workers.run(2, debug_server_job)


def test_debug_server_shows_the_state_of_operations(workers) -> None:
    pytest.importorskip("torch.distributed.debug._frontend", reason="torch 2.14 has the debug server")
    workers.run(2, flight_page_job)


def test_process_with_a_debug_page_ends_in_order() -> None:
    """Also where modules outlive the interpreter, as those do that something refers to."""
    pytest.importorskip("torch.distributed.debug._frontend", reason="torch 2.14 has the debug server")
    program = "import weft.torch.debug_server as one; one.DebugPage(); one.itself = one"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


LATER_JOB = """
import sys
import weft

with weft.init(0, 1, address=sys.argv[1]):
    input()
"""


def test_debug_page_shows_the_job_of_its_process(tmp_path, monkeypatch) -> None:
    pytest.importorskip("torch.distributed.debug._frontend", reason="torch 2.14 has the debug server")
    monkeypatch.setenv("WEFT_FLIGHT_DIR", str(tmp_path))
    ports = free_ports(2)

    def wait_for_jobs(count: int) -> None:
        ends = time.monotonic() + 30
        while len(live_status.running_jobs(tmp_path)) < count and time.monotonic() < ends:
            time.sleep(0.02)

    with weft.init(0, 1, address=f"127.0.0.1:{ports[0]}"):
        wait_for_jobs(1)
        page = weft.torch.DebugPage()
        command = [sys.executable, "-c", LATER_JOB, f"127.0.0.1:{ports[1]}"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as other:
            wait_for_jobs(2)
            assert "1 ranks" in page.dump()
            assert page._watch.job.processes == {os.getpid()}
            assert live_status.running_jobs(tmp_path)[0].processes == {other.pid}
            other.communicate("", timeout=30)


def test_timeout_of_operations(workers) -> None:
    for message in workers.run(2, late_job):
        assert "all-reduce" in message or "rank" in message


def barrier_job(_rank: int, size: int) -> None:
    for wait_all_ranks in (False, True, False):
        dist.monitored_barrier(wait_all_ranks=wait_all_ranks)
    group = dist.new_group(list(reversed(range(size))))
    dist.monitored_barrier(group, timedelta(seconds=20))


def debug_server_job(rank: int, size: int) -> None:
    from torch.distributed.debug._frontend import FrontendServer

    dist.barrier()
    if rank == 0:
        server = FrontendServer(0, [weft.torch.DebugPage()])
        address = f"http://[::1]:{server._server.server_port}/weft"
        ends = time.monotonic() + 20
        page = ""
        # The ranks' sockets are made beside the first call.
        while f"{size} ranks" not in page and time.monotonic() < ends:
            with urllib.request.urlopen(address, timeout=20) as response:
                page = response.read().decode()
        server._server.shutdown()
        server._server.server_close()
        assert f"{size} ranks" in page and "step/s" in page and '<a href="/weft">weft</a>' in page, page
    dist.barrier()


def flight_page_job(rank: int, size: int) -> None:
    """Rank 0 looks at the page while an operation is under way, and when it has ended."""
    from torch._C._distributed_c10d import _WorkerServer
    from torch.distributed.debug import _frontend

    from weft.torch import debug_server

    def fetch_all(name: str, *, timeout: float) -> tuple[list[str], list[_frontend.Response]]:
        """As torch's, which needs packages that are not installed here."""
        answers = [urllib.request.urlopen(address + name, data=b"", timeout=timeout) for address in addresses]
        return addresses, [_frontend.Response(answer.status, answer.read().decode()) for answer in answers]

    pages, worker = [weft.torch.DebugPage(), weft.torch.DebugPage()], _WorkerServer("::", 0)
    addresses: list[str] = [""] * size
    dist.all_gather_object(addresses, f"http://localhost:{worker.port}/handler/")
    store, x = dist.distributed_c10d._get_default_store(), torch.ones(1 << 20)
    dist.all_reduce(x)
    if rank == 0:
        debug_server.fetch_all = fetch_all
        server = _frontend.FrontendServer(0, pages[:1])
        before = under_way(server)
        work = dist.all_reduce(x, async_op=True)
        assert under_way(server)[0] == before[0] + 1
        store.set("looked", "")
        work.wait()
        store.wait(["ended"])
        assert under_way(server) == before
        server._server.shutdown()
        server._server.server_close()
        store.set("looked again", "")
    else:
        store.wait(["looked"])
        dist.all_reduce(x)
        store.set("ended", "")
        store.wait(["looked again"])
    worker.shutdown()


def under_way(server: Any) -> list[int]:
    """How many operations of each rank are under way, as the page shows it.

    It has a record for each endpoint of a process, also for those of earlier tests.
    """
    with urllib.request.urlopen(f"http://[::1]:{server._server.server_port}/weft/flight", timeout=20) as response:
        page = html.unescape(response.read().decode())
    return [len(re.findall(r'"state": "(scheduled|started)"', rank)) for rank in page.split("<h2>Rank")[1:]]


def impatient_job(rank: int, _size: int) -> None:
    group = dist.distributed_c10d._get_default_group()
    if rank == 0:
        with pytest.raises(RuntimeError, match="rank 1 of 2 did not reach"):
            group.monitored_barrier(timedelta(0))
    else:
        dist.distributed_c10d._get_default_store().wait(["0 gave up"])
        with pytest.raises(RuntimeError, match="rank 1 of 2 did not reach"):
            group.monitored_barrier()
    dist.distributed_c10d._get_default_store().set("0 gave up", "")


def missing_job(rank: int, size: int, missing: list[int]) -> str:
    store = dist.distributed_c10d._get_default_store()
    message = ""
    dist.barrier()  # those that come do so at one time
    if rank not in missing:
        with pytest.raises(weft.Timeout) as failure:
            dist.monitored_barrier(timeout=timedelta(seconds=1), wait_all_ranks=True)
        message = str(failure.value)
    store.set(f"tried {rank}", "")
    store.wait([f"tried {r}" for r in range(size)])
    if rank in missing and rank != 0:
        with pytest.raises(weft.Timeout, match=f"rank.* {rank}"):
            dist.monitored_barrier()
    if missing != [0]:
        dist.monitored_barrier()
    tensor = torch.ones(1)
    dist.all_reduce(tensor)  # the group is as good as before
    assert tensor.item() == size
    return message


@contextlib.contextmanager
def detailed_group(size: int) -> Iterator[dist.ProcessGroup]:
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    try:
        group = dist.new_group(list(range(size)))
        yield group
        dist.destroy_process_group(group)
    finally:
        dist.set_debug_level(dist.DebugLevel.OFF)


def detail_job(rank: int, size: int) -> None:
    with detailed_group(size) as group:
        tensor = torch.full((3,), float(rank))
        dist.all_reduce(tensor, group=group)
        assert tensor.tolist() == [sum(range(size))] * 3
        work = dist.all_reduce(tensor.fill_(1), group=group, async_op=True)
        work.wait()
        assert work.is_completed()
        assert tensor.tolist() == [size] * 3
        outputs = [torch.empty(2) for _ in range(size)]
        dist.all_gather(outputs, torch.full((2,), float(rank)), group=group)
        assert torch.cat(outputs).tolist() == [r for r in range(size) for _ in range(2)]
        gathered: list[object] = [None] * size
        dist.all_gather_object(gathered, rank, group=group)
        assert gathered == list(range(size))
        dist.barrier(group)
        if rank == 0:
            for _ in range(size - 1):
                assert dist.recv(tensor, group=group) == tensor[0].item()
        else:
            dist.send(torch.full((3,), float(rank)), 0, group=group)
        model = DistributedDataParallel(torch.nn.Linear(3, 1), process_group=group)
        model(torch.full((1, 3), float(rank))).sum().backward()
        assert model.module.weight.grad.tolist() == [[sum(range(size)) / size] * 3]


def differences_job(rank: int, size: int) -> None:
    # torch's own check; before torch 2.14, which does not wrap groups written in Python, weft's.
    found = pytest.raises(Exception, match=r"Detected mismatch|made different calls")
    with detailed_group(size) as group, found:
        dist.all_reduce(torch.ones(3 + rank), group=group)
        raise AssertionError("operations that differ must be found")


def late_job(rank: int, size: int) -> str:
    group = dist.new_group(list(range(size)), timeout=timedelta(seconds=20))
    dist.barrier(group)
    backend = group._get_backend(torch.device("cpu"))
    backend.set_timeout(timedelta(seconds=0.5))
    assert backend.options._timeout == timedelta(seconds=0.5)
    with pytest.raises(weft.Timeout) as failure:
        if rank == 0:
            dist.all_reduce(torch.ones(3), group=group)
        else:
            dist.recv(torch.ones(3), 0, group=group)
    return str(failure.value)
