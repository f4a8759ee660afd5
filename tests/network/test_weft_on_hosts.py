"""Tests of weft between emulated hosts: transports, and loss of a host or a link."""

import os
import signal
import time

import pytest
from emulated_hosts import UNTIL_FAILURE, HostLauncher, python, reports, run_hosts

ALL_REDUCE = """
import json, re
import numpy as np
import weft

group = weft.init(timeout=30)
sums = []
for elements in (1, 1001, 300_000):
    x = np.arange(elements, dtype=np.float32) * (group.rank + 1)
    group.all_reduce(x)
    factor = group.size * (group.size + 1) // 2
    sums.append(bool(np.array_equal(x, np.arange(elements, dtype=np.float32) * factor)))
maps = open("/proc/self/maps").read()
segments = sorted(set(re.findall(r" ([0-9]+) +/memfd:weft", maps)))
print(json.dumps({"sums": sums, "hosts": group.hosts, "segments": segments}))
group.barrier()
group.close()
"""


@pytest.mark.parametrize(("hosts", "ranks_per_host"), [(2, 1), (2, 2), (4, 1), (3, 2)])
def test_shared_memory_stays_within_hosts(hosts: int, ranks_per_host: int) -> None:
    done = run_hosts("--hosts", str(hosts), "--ranks-per-host", str(ranks_per_host), command=python(ALL_REDUCE))
    found = reports(done)
    lowest = [rank - rank % ranks_per_host for rank in range(hosts * ranks_per_host)]
    for rank, report in enumerate(found):
        assert report["sums"] == [True, True, True]
        assert report["hosts"] == lowest
        for other, others in enumerate(found):
            common = set(report["segments"]) & set(others["segments"])
            assert bool(common) == (lowest[rank] == lowest[other]), (rank, other, common)


CONGESTION_CONTROL = """
import json, os, socket
import numpy as np
import weft

group = weft.init(timeout=30)
group.all_reduce(np.ones(1000, np.float32))
used = []
for number in os.listdir("/proc/self/fd"):
    try:
        end = socket.socket(fileno=os.dup(int(number)))
        own, far = end.getsockname(), end.getpeername()
    except OSError:
        continue  # no socket, or one that listens
    if end.family == socket.AF_INET and 29500 not in (own[1], far[1]):
        name = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        used.append((far[0], name.rstrip(bytes(1)).decode()))
group.barrier()
print(json.dumps({"used": used}))
group.close()
"""


def test_data_use_the_chosen_congestion_control(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_TCP_CONGESTION", "reno")
    first, second = reports(run_hosts("--hosts", "2", command=python(CONGESTION_CONTROL)))
    assert first["used"] == [["10.77.0.2", "reno"]]
    assert second["used"] == [["10.77.0.1", "reno"]]


FOR_UNITS = """
import json
import numpy as np
import weft

group = weft.init(timeout=30)
rank, size = group.rank, group.size
right = []
for each in (1, 257, 40_000):
    blocks = np.arange(size * each, dtype=np.float32).reshape(size, each) % 1000
    mine, whole, block = blocks + rank, np.zeros_like(blocks), np.zeros(each, np.float32)
    total = size * blocks + size * (size - 1) // 2
    for root in (0, size - 2):
        x = blocks + (rank != root)
        group.broadcast(x, root=root, algorithm="leaders(mapped, binomial)")
        right.append(np.array_equal(x, blocks))
        x = mine.copy()
        group.reduce(x, root=root, algorithm="leaders(slice-reduce, binomial)")
        right.append(np.array_equal(x, total if rank == root else mine))
        found = group.gather(mine[0], root=root, algorithm="leaders")
        right.append(rank != root or np.array_equal(found, blocks[0] + np.arange(size)[:, None]))
        group.scatter(blocks if rank == root else None, root, block, algorithm="leaders")
        right.append(np.array_equal(block, blocks[rank]))
    group.all_gather(mine[rank].copy(), whole, algorithm="multi-rail")
    right.append(np.array_equal(whole, blocks + np.arange(size)[:, None]))
    group.reduce_scatter(mine, out=block, algorithm="multi-rail")
    right.append(np.array_equal(block, total[rank]))
    group.all_to_all(mine, out=whole, algorithm="multi-rail")
    right.append(np.array_equal(whole, blocks[rank] + np.arange(size)[:, None]))
group.barrier()
print(json.dumps({"right": [bool(one) for one in right], "plan": group.plan("all-gather", 4096).name}))
group.close()
"""


@pytest.mark.parametrize(("hosts", "ranks_per_host"), [(2, 3), (3, 2)])
def test_algorithms_for_units_between_hosts(hosts: int, ranks_per_host: int) -> None:
    done = run_hosts("--hosts", str(hosts), "--ranks-per-host", str(ranks_per_host), command=python(FOR_UNITS))
    for report in reports(done):
        assert report["plan"] == "multi-rail"
        assert report["right"] == [True] * 33


def test_host_that_dies_is_named_by_all_others() -> None:
    with HostLauncher("--hosts", "3", "--ranks-per-host", "2", command=python(UNTIL_FAILURE)) as launcher:
        launcher.wait_for_lines(6)
        died = time.monotonic()
        os.kill(launcher.host_pids()[1], signal.SIGKILL)
        found = launcher.failures(4)
    for report in found:
        assert report["lost"] in (2, 3)
        assert report["host"] == "host1"
        assert report["at"] - died < 2, "before the peer timeout would find it"


def test_cut_off_host_is_lost_after_peer_timeout() -> None:
    with HostLauncher("--hosts", "3", command=python(UNTIL_FAILURE)) as launcher:
        launcher.wait_for_lines(3)
        cut = time.monotonic()
        launcher.on_switch("ip", "link", "set", "port2", "down")
        found = launcher.failures(3)
    alone = [report for report in found if report["lost"] != 2]
    assert len(alone) == 1, found
    for report in found:
        assert report["at"] - cut < 2 + 4


GOING_ON = (
    UNTIL_FAILURE
    + """
try:
    left = group.shrink(timeout=30)
    left.all_reduce(np.ones(1000, np.float32))
    print(json.dumps({"left": group.ranks_of(left), "at": time.monotonic()}), flush=True)
except weft.Error as error:
    print(json.dumps({"left": type(error).__name__, "at": time.monotonic()}), flush=True)
time.sleep(60)
"""
)


def test_survivors_of_a_dead_host_continue() -> None:
    with HostLauncher("--hosts", "3", "--ranks-per-host", "2", command=python(GOING_ON)) as launcher:
        launcher.wait_for_lines(6)
        os.kill(launcher.host_pids()[0], signal.SIGKILL)
        found = launcher.failures(8)
    assert [report["left"] for report in found if "left" in report] == [[2, 3, 4, 5]] * 4


def test_larger_part_of_partitioned_hosts_continues() -> None:
    script = GOING_ON.replace("timeout=30)\n    left", "timeout=16)\n    left")
    assert script != GOING_ON
    with HostLauncher("--hosts", "3", command=python(script)) as launcher:
        launcher.wait_for_lines(3)
        launcher.on_switch("ip", "link", "set", "port0", "down")
        found = launcher.failures(6)
    left = [report["left"] for report in found if "left" in report]
    assert sorted(left, key=str) == ["Timeout", [1, 2], [1, 2]]


@pytest.mark.parametrize(
    ("peer_timeout", "cut_s", "calls", "pause_s"), [(8, 0.5, 300, 0), (4, 3.6, 300, 0), (4, 3.6, 4, 1.5)]
)
def test_link_outage_shorter_than_the_peer_timeout_loses_no_rank(
    peer_timeout: int, cut_s: float, calls: int, pause_s: float
) -> None:
    """Also where the kernel tries again only after the peer timeout, and on idle connections."""
    loop = f"for _ in range({calls}):\n        time.sleep({pause_s})"
    script = UNTIL_FAILURE.replace("while True:", loop).replace("peer_timeout=2", f"peer_timeout={peer_timeout}")
    script += "\nprint(json.dumps({'lost': None, 'at': time.monotonic()}))\ngroup.close()\n"
    with HostLauncher("--hosts", "2", "--gbps", "1", command=python(script)) as launcher:
        launcher.wait_for_lines(2)
        launcher.on_switch("ip", "link", "set", "port1", "down")
        time.sleep(cut_s)  # the length of the cut, not a wait for anything
        launcher.on_switch("ip", "link", "set", "port1", "up")
        assert [report["lost"] for report in launcher.failures(2)] == [None, None]


DEADLINE = """
import contextlib, json, sys, time
import numpy as np
import weft
from weft_lab.experiment.far_cut import Cut

group = weft.init(timeout=2, peer_timeout=20)
x = np.ones(int(sys.argv[1]), np.float32)
group.all_reduce(x)
group.barrier()
with Cut(0.05, 5.0) if group.rank == 1 else contextlib.nullcontext():
    time.sleep(0.06 if x.size < 10_000 else 0)  # large messages are under way when the line is cut
    begin = time.monotonic()
    try:
        group.all_reduce(x)
    except weft.Timeout as error:
        print(json.dumps({"seconds": time.monotonic() - begin, "error": str(error)}), flush=True)
"""


@pytest.mark.parametrize("elements", [1000, 15_000_000])
def test_deadlines_run_on_while_a_line_is_interrupted(elements: int) -> None:
    for report in reports(run_hosts("--hosts", "2", "--gbps", "1", command=[*python(DEADLINE), str(elements)])):
        assert 2 <= report["seconds"] < 4
        assert "or its host cannot be reached" in report["error"]


THROUGH_A_CUT = """
import contextlib, json, time
import numpy as np
import weft
from weft_lab.experiment.far_cut import Cut

group = weft.init(timeout=60, peer_timeout=40)
x = np.ones(1000, np.float32)
group.all_reduce(x)
group.barrier()
time.sleep(1)  # nothing is under way when the line is cut
with Cut(0.0, 10.0) if group.rank == 1 else contextlib.nullcontext():
    time.sleep(0.5)
    begin = time.monotonic()
    group.all_reduce(x)
    print(json.dumps({"sum": float(x[0]), "seconds": time.monotonic() - begin}))
group.close()
"""


def test_connection_that_tcp_gives_up_before_the_peer_timeout_is_made_anew() -> None:
    """TCP does so within eight seconds if its own system drops what it sends."""
    for report in reports(run_hosts("--hosts", "2", command=python(THROUGH_A_CUT))):
        assert report["sum"] == 4
        assert report["seconds"] > 8
