"""Tests of claimed steps: ranks stopped at any moment, and death of helpers and owners."""

import random
import signal
import time

import pytest
import tasks_claims as tasks

RUNNING_S = 3.0

on_shared_memory = pytest.mark.parametrize("transport", ["shm"])


@on_shared_memory
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_ranks_that_stop_at_random_change_no_bit(team, ranks):
    team.run(tasks.make_arena)
    team.start(tasks.sum_for, RUNNING_S)
    draw, until = random.Random(), time.monotonic() + RUNNING_S / 2
    while time.monotonic() < until:
        victim = draw.randrange(ranks)
        team.signal(victim, signal.SIGSTOP)
        time.sleep(draw.random() * 0.01)
        team.signal(victim, signal.SIGCONT)
        time.sleep(draw.random() * 0.01)
    answers = team.collect(deadline=60)
    times, helped = zip(*answers, strict=True)
    assert min(times) == max(times) > 0
    assert sum(helped) > 0


@on_shared_memory
@pytest.mark.parametrize("ranks", [3, 4])
def test_death_of_helper_is_reported_to_all(teams, transport, ranks):
    for _ in range(5):
        team = teams.get(ranks, transport)
        try:
            victim = ranks - 1
            team.run(tasks.make_arena)
            team.start(tasks.sum_until_it_fails)
            time.sleep(0.1 + random.random() * 0.1)  # somewhere in the middle of it
            killed = time.monotonic()
            team.signal(victim, signal.SIGKILL)
            for kind, rank, when in team.collect(range(victim), deadline=10):
                assert (kind, rank) == ("PeerLost", victim)
                assert when - killed < 1
        finally:
            team.kill()
