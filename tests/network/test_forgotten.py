"""Tests of jobs whose connections are forgotten on the way, as by a translator of addresses."""

import pytest
from emulated_hosts import python, reports, run_hosts

# All-reduces until two seconds after one that took long, in which every sum is compared; then the
# ranks meet again. Every rank prints the longest of them, and the time of the meeting.
UNTIL_PAUSE = """
import json, time

import numpy as np
import weft

group = weft.init(timeout=60, peer_timeout=10)
x = np.random.default_rng(group.rank).integers(-1000, 1000, 2**18).astype(np.float32)
expected = sum(np.random.default_rng(rank).integers(-1000, 1000, 2**18) for rank in range(group.size))
wrong, longest, paused, begin = 0, 0.0, None, time.monotonic()
while True:
    over = time.monotonic() > (begin + 30 if paused is None else paused + 2)
    flag = np.array([group.rank == 0 and over], np.float32)
    since = time.monotonic()
    group.broadcast(flag)
    y = x.copy()
    group.all_reduce(y)
    took = time.monotonic() - since
    wrong += not np.array_equal(y, expected)
    longest = max(longest, took)
    if took > 0.15 and paused is None and time.monotonic() > begin + 1:
        paused = time.monotonic()
    if flag[0]:
        break
# The connections to the store were forgotten as well.
since = time.monotonic()
second = weft.init(timeout=60, peer_timeout=10)
wrong += second.all_reduce(np.ones(1, np.float32))[0] != group.size
print(json.dumps({"wrong": int(wrong), "longest": longest, "meeting": time.monotonic() - since}), flush=True)
second.close()
group.close()
"""


def check(option: str, reported: str, *options: str) -> None:
    done = run_hosts("--hosts", "3", "--gbps", "1", "--forget", option, *options, command=python(UNTIL_PAUSE))
    for rank in reports(done):
        assert rank["wrong"] == 0
        # Much less than the peer timeout, after which the rank would be lost.
        assert rank["longest"] < 5 and rank["meeting"] < 20, rank
    assert reported in done.stderr and "was made anew" in done.stderr, done.stderr
    print(done.stderr)


@pytest.mark.parametrize("encrypt", ["0", "1"])
def test_forgotten_connections_cost_a_pause(monkeypatch: pytest.MonkeyPatch, encrypt: str) -> None:
    monkeypatch.setenv("WEFT_ENCRYPT", encrypt)
    check("1@5", "are forgotten from now on")


def test_reset_connections_cost_a_pause() -> None:
    check("1@5:reset", "are answered with resets from now on")


def test_forgotten_connections_over_several_interfaces_cost_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_INTERFACE", "all")
    check("1@5", "are forgotten from now on", "--interfaces", "2")
