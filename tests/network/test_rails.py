"""Tests of links over several interfaces, of which one is lost and returns."""

import os
import signal
import time

import pytest
from emulated_hosts import UNTIL_FAILURE, HostLauncher, python, reports, run_hosts

# All-reduces for some seconds, in which every sum is compared. Every rank prints the longest of
# them, and how much each interface has sent at the end: after the return of the lost one.
FOR_SECONDS = """
import json, os, subprocess, time
from pathlib import Path

import numpy as np
import weft

def sent():
    rows = [line.split() for line in Path("/proc/net/dev").read_text().splitlines()]
    return [int(row[9]) for name in ("eth0:", "eth1:") for row in rows if row[0] == name]

def set_own(state):
    if os.environ.get("OWN") and group.rank == 1:
        subprocess.run(["ip", "link", "set", os.environ["OWN"], state], check=True)

group = weft.init(timeout=30, peer_timeout=8)
x = np.random.default_rng(group.rank).integers(-1000, 1000, 2**20).astype(np.float32)
expected = sum(np.random.default_rng(rank).integers(-1000, 1000, 2**20) for rank in range(group.size))
wrong, longest, step, begin = 0, 0.0, 0, time.monotonic()
while True:
    at = time.monotonic() - begin
    flags = np.array([at > 1, at > 3, at > 6, at > 8], np.float32) if group.rank == 0 else np.zeros(4, np.float32)
    group.broadcast(flags)
    if flags[0] and step == 0:
        step = 1
        set_own("down")
    if flags[1] and step == 1:
        step = 2
        set_own("up")
    if flags[2] and step == 2:
        step, before = 3, sent()
    if flags[3]:
        break
    y, since = x.copy(), time.monotonic()
    group.all_reduce(y)
    longest = max(longest, time.monotonic() - since)
    wrong += not np.array_equal(y, expected)
late = np.subtract(sent(), before).tolist()
print(json.dumps({"wrong": wrong, "longest": longest, "late": late}), flush=True)
group.close()
"""


def check(*options: str) -> None:
    done = run_hosts("--hosts", "3", "--gbps", "1", "--interfaces", "2", *options, command=python(FOR_SECONDS))
    pauses = []
    for rank in reports(done):
        assert rank["wrong"] == 0
        # Much less than the peer timeout, after which the rank would be lost.
        assert rank["longest"] < 4, rank
        # Both carry traffic again.
        assert min(rank["late"]) > sum(rank["late"]) / 5, rank
        pauses.append(rank["longest"])
    assert "was made anew" in done.stderr, done.stderr
    print(f"longest all-reduces: {pauses}\n{done.stderr}")


@pytest.fixture(autouse=True)
def use_all_interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_INTERFACE", "eth0,eth1")


@pytest.mark.parametrize("interface", [0, 1])
def test_lost_line_costs_a_pause(interface: int) -> None:
    check("--lose", f"1.{interface}@2+2")


@pytest.mark.parametrize("way", ["in", "out"])
def test_line_lost_in_one_direction_costs_a_pause(way: str) -> None:
    check("--lose", f"1.0:{way}@2+2")


# Host 1 does not answer over eth1 when the ranks connect. Sums until eth1 carries much.
LOST_AT_FIRST = """
import json, os, subprocess, time
from pathlib import Path

import numpy as np
import weft

def answer(state):
    if os.environ["RANK"] == "1":
        subprocess.run(["ip", "link", "set", "eth1", "arp", state], check=True)

def sent():
    rows = [line.split() for line in Path("/proc/net/dev").read_text().splitlines()]
    return next(int(row[9]) for row in rows if row[0] == "eth1:")

answer("off")
group = weft.init(timeout=30)
before, begin, wrong, rounds = sent(), time.monotonic(), 0, 0
mib = np.arange(2**18, dtype=np.float32)
early = 0
while True:
    y = mib.copy()
    group.all_reduce(y)
    wrong += not np.array_equal(y, 2 * mib)
    rounds += 1
    if rounds == 20:
        early = sent() - before
        answer("on")
    # Both stop together, when both have sent over it, or never will.
    enough = sent() - before > 2**24 or time.monotonic() > begin + 40
    if group.all_reduce(np.array([rounds > 20 and enough], np.float32))[0] == 2:
        break
print(json.dumps({"wrong": wrong, "early": early, "late": sent() - before}), flush=True)
group.close()
"""


def test_line_that_is_lost_at_first_is_used_later() -> None:
    for rank in reports(run_hosts("--hosts", "2", "--gbps", "1", "--interfaces", "2", command=python(LOST_AT_FIRST))):
        assert rank["wrong"] == 0
        assert rank["early"] < 2**20 < 2**24 < rank["late"], rank


def test_lost_line_costs_encrypted_links_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_ENCRYPT", "1")
    check("--lose", "1.1@2+2")


def test_own_interface_that_goes_down_costs_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN", "eth1")
    check()


def test_host_that_loses_all_lines_is_lost() -> None:
    with HostLauncher("--hosts", "3", "--interfaces", "2", command=python(UNTIL_FAILURE)) as launcher:
        launcher.wait_for_lines(3)
        cut = time.monotonic()
        for port in ("port2", "port2.1"):
            launcher.on_switch("ip", "link", "set", port, "nomaster")
        found = launcher.failures(3)
    assert len([report for report in found if report["lost"] == 2]) == 2, found
    for report in found:
        assert 1 < report["at"] - cut < 2 + 4, found


def test_host_that_dies_beside_a_lost_line_is_lost_soon() -> None:
    with HostLauncher("--hosts", "3", "--interfaces", "2", command=python(UNTIL_FAILURE)) as launcher:
        launcher.wait_for_lines(3)
        launcher.on_switch("ip", "link", "set", "port2.1", "nomaster")
        time.sleep(1.5)  # the shift, and some traffic
        died = time.monotonic()
        os.kill(launcher.host_pids()[2], signal.SIGKILL)
        found = launcher.failures(2)
    assert [report["lost"] for report in found] == [2, 2]
    for report in found:
        assert report["at"] - died < 1, found
