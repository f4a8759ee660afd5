"""Tests of links of several connections: over several interfaces, and on a long line."""

import pytest
from emulated_hosts import python, reports, run_hosts

OVER_INTERFACES = """
import json
from pathlib import Path

import numpy as np
import weft

def sent():
    rows = [line.split() for line in Path("/proc/net/dev").read_text().splitlines()]
    return [int(row[9]) for name in ("eth0:", "eth1:") for row in rows if row[0] == name]

group = weft.init(timeout=30)
rng = np.random.default_rng(group.rank)
x = rng.integers(-1000, 1000, 2**20).astype(np.float32)
expected = sum(np.random.default_rng(rank).integers(-1000, 1000, 2**20) for rank in range(group.size))
before, right = sent(), []
for _ in range(5):
    y = x.copy()
    group.all_reduce(y)
    right.append(bool(np.array_equal(y, expected)))
small = group.all_reduce(np.ones(1, np.float32))
print(json.dumps({"right": all(right), "sent": np.subtract(sent(), before).tolist()}))
group.close()
"""


@pytest.mark.parametrize("interfaces", ["eth0,eth1", "all", "10.77.0.0/24, 10.77.1.0/24"])
def test_all_interfaces_carry_large_messages(monkeypatch: pytest.MonkeyPatch, interfaces: str) -> None:
    monkeypatch.setenv("WEFT_INTERFACE", interfaces)
    ranks = reports(run_hosts("--hosts", "3", "--gbps", "1", "--interfaces", "2", command=python(OVER_INTERFACES)))
    for rank in ranks:
        assert rank["right"]
        # 4/3 of 4 MiB five times, of which neither line carries nearly everything.
        assert min(rank["sent"]) > 5 * 4 / 3 * 2**22 / 4, rank["sent"]


def test_only_the_named_interface_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_INTERFACE", "eth1")
    for rank in reports(run_hosts("--hosts", "2", "--interfaces", "2", command=python(OVER_INTERFACES))):
        assert rank["right"]
        assert rank["sent"][0] < 2**20 < rank["sent"][1]


CONNECTIONS = """
import json, os, socket
import weft

group = weft.init(timeout=30)
group.barrier()
count = 0
for number in os.listdir("/proc/self/fd"):
    try:
        end = socket.socket(fileno=os.dup(int(number)))
        far = end.getpeername()
    except OSError:
        continue  # no socket, or one that listens
    count += end.family == socket.AF_INET and 29500 not in (end.getsockname()[1], far[1])
group.barrier()
print(json.dumps({"connections": count}))
group.close()
"""


def check_connections(expected: int, *options: str) -> None:
    ranks = reports(run_hosts("--hosts", "2", *options, command=python(CONNECTIONS)))
    assert [rank["connections"] for rank in ranks] == [expected] * 2


def test_number_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    check_connections(1)
    check_connections(4, "--delay-ms", "3")
    monkeypatch.setenv("WEFT_TCP_CONNECTIONS", "3")
    check_connections(3)
