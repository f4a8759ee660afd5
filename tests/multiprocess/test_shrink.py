"""Tests of groups of the ranks that are left after kills and stops."""

import random
import signal
import subprocess
import sys
import time

import pytest
import tasks_shrink as tasks
from team import free_port

SOON_S = 1.0
STOPPED_S = 60.0

transports = pytest.mark.parametrize("transport", ["shm", "tcp"])


@transports
@pytest.mark.parametrize("victim", [0, 2])
def test_survivors_have_a_group_within_a_second(teams, transport, victim):
    team = teams.get(4, transport)
    try:
        team.run(tasks.work_once)
        team.start(tasks.go_on_after_a_loss)
        time.sleep(0.1)
        team.signal(victim, signal.SIGKILL)
        survivors = [rank for rank in range(4) if rank != victim]
        for ranks, took in team.collect(survivors, deadline=20):
            assert ranks == survivors
            assert took < SOON_S
    finally:
        team.kill()


@transports
def test_last_survivor_continues_alone(teams, transport):
    team = teams.get(2, transport)
    try:
        team.run(tasks.work_once)
        team.start(tasks.go_on_after_a_loss)
        time.sleep(0.1)
        team.signal(0, signal.SIGKILL)  # at which the ranks have met
        [(ranks, took)] = team.collect([1], deadline=20)
        assert ranks == [1]
        assert took < SOON_S
    finally:
        team.kill()


@transports
def test_survivors_of_kills_during_shrink_continue_together(teams, transport):
    for _ in range(4):
        seed = random.randrange(1 << 30)
        team = teams.get(5, transport)
        try:
            victims = random.Random(seed).sample(range(5), 2)
            team.run(tasks.work_once)
            team.start(tasks.end_in_the_middle, victims, seed)
            survivors = [rank for rank in range(5) if rank not in victims]
            for world in team.collect(survivors, deadline=30):
                assert world == survivors, f"seed {seed}, victims {victims}"
        finally:
            team.kill()


@transports
def test_stopped_rank_is_excluded_and_notified(teams, transport):
    team = teams.get(3, transport)
    try:
        team.run(tasks.work_once)
        team.start(tasks.stop_and_come_late, STOPPED_S)
        time.sleep(0.1)
        team.signal(1, signal.SIGSTOP)
        stopped = time.monotonic()
        survivors = team.collect([0, 2], deadline=60)
        assert [ranks for _, ranks in survivors] == [[0, 2]] * 2
        assert time.monotonic() - stopped < STOPPED_S / 2, "they waited for a process that does not answer"
        team.signal(1, signal.SIGCONT)
        [(kind, text)] = team.collect([1], deadline=20)
        assert kind == "Aborted"
        assert "ranks 0, 2 continue without rank 1" in text
    finally:
        team.kill()


@pytest.mark.parametrize("transport", ["shm"])
def test_waiting_for_ranks_that_are_missing_is_interrupted(teams, transport):
    team = teams.get(2, transport)
    try:
        _, late = team.run(tasks.wait_in_shrink)
        assert late is not None
        assert late < 0.5
    finally:
        team.kill()


NEW_RANK = """
import sys
import numpy as np
import weft

group = weft.rejoin(2, 3, address=sys.argv[1], epoch=1, timeout=30, transport=sys.argv[2])
state = np.zeros(7)
group.broadcast(state, 0)
assert (state == 3).all(), state
x = np.full(1001, 3.0)
group.all_reduce(x)
assert (x == 6).all(), x
"""


@transports
def test_new_process_replaces_lost_rank(teams, transport):
    team = teams.get(3, transport)
    address = f"127.0.0.1:{free_port()}"
    try:
        team.run(tasks.work_once)
        team.start(tasks.let_a_new_rank_in, address, transport)
        time.sleep(0.1)
        team.signal(0, signal.SIGKILL)  # at which the ranks have met
        command = [sys.executable, "-c", NEW_RANK, address, transport]
        new = subprocess.Popen(command)
        assert team.collect([1, 2], deadline=40) == [(0, 3), (1, 3)]
        assert new.wait(20) == 0
    finally:
        team.kill()
