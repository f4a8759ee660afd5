"""Tests of memory that ranks may still write which were given up: the pool's and the user's."""

import random
import signal
import time

import pytest
import tasks_losses as tasks

on_shared_memory = pytest.mark.parametrize("transport", ["shm"])


@on_shared_memory
@pytest.mark.parametrize("ranks", [3])
@pytest.mark.parametrize("elements", [1000, 1 << 20])
def test_stopped_rank_leaves_broken_groups_symmetric_memory_unchanged(teams, ranks, transport, elements):
    for _ in range(3):
        team = teams.get(ranks, transport)
        try:
            team.run(tasks.make_arena, elements)
            team.start(tasks.sum_symmetric_until_it_fails, 0.3)
            time.sleep(0.1 + random.random() * 0.1)  # somewhere in the middle of it
            team.signal(2, signal.SIGSTOP)
            outcomes = team.collect([0, 1], deadline=10)
            assert {kind for kind, _ in outcomes} == {"Timeout"}
            team.signal(2, signal.SIGCONT)
            team.collect([2], deadline=10)
            assert team.run(tasks.look_at_symmetric) == [[tasks.MARK]] * ranks
        finally:
            team.kill()


@on_shared_memory
@pytest.mark.parametrize("ranks", [3])
def test_only_end_of_process_frees_memory(teams, ranks, transport):
    team = teams.get(ranks, transport)
    try:
        team.run(tasks.reduce_once)
        team.start(tasks.reduce_until_it_fails_and_leave)
        time.sleep(0.1)
        team.signal(2, signal.SIGKILL)
        for text, quarantined in team.collect([0, 1], deadline=20):
            assert f"process {team.pid(2)} ended" in text
            assert quarantined == 0
    finally:
        team.kill()
