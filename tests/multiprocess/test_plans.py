"""Tests of algorithm selection on all ranks: forced, profiled, reproducible, user schedules."""

import os
import subprocess
import sys

import pytest
import tasks_plans as tasks
from team import free_port

with_transports = pytest.mark.parametrize("transport", ["shm", "tcp"])
DEADLINE_S = 60

with_ranks = pytest.mark.parametrize("ranks", [4])


@with_transports
@with_ranks
def test_forced(team):
    (forced, chosen), *others = team.run(tasks.forced)
    assert all(other == (forced, chosen) for other in others)
    assert forced != chosen


@with_transports
@with_ranks
def test_forced_differently(team):
    for error in team.run(tasks.forced_differently):
        assert "by ring" in error
        assert "by two-shot" in error


@with_transports
@with_ranks
def test_replayed(team, transport, tmp_path):
    team.run(tasks.replayed, transport, f"127.0.0.1:{free_port()}", str(tmp_path / "plan.json"))


@with_transports
@pytest.mark.parametrize("ranks", [2, 3])
def test_own_schedule(team):
    team.run(tasks.user_schedule)


@with_transports
@pytest.mark.parametrize("ranks", [3])
def test_user_schedule_in_place(team, transport):
    refusals = team.run(tasks.user_schedule_in_place)
    says = {"shm": "needs symmetric memory", "tcp": "needs symmetric memory and all ranks on one host"}
    assert all(says[transport] in refusal for refusal in refusals), refusals


@with_transports
@pytest.mark.parametrize("ranks", [3])
def test_own_schedule_replayed(team, transport, tmp_path):
    team.run(tasks.user_schedule_replayed, transport, f"127.0.0.1:{free_port()}", str(tmp_path / "plan.json"))


@with_transports
@pytest.mark.parametrize("ranks", [3])
def test_own_schedules_refused(team):
    errors = team.run(tasks.user_schedules_refused)
    assert errors == [errors[0]] * team.size
    expected = {
        "another number of ranks": "'mine' has 4 programs, but the group has 3 ranks",
        "weft's name": "the name 'ring' is taken by one of weft's algorithms",
        "the verifier": "the schedule 'mine' is refused",
        "a file": "/nowhere/mine.txt cannot be read: No such file",
    }
    assert errors[0].keys() == expected.keys()
    for what, words in expected.items():
        assert words in errors[0][what].replace('"', "'")


OWN = """
import sys, numpy as np, weft
with weft.init(timeout=20) as group:
    x = group.all_reduce(np.ones(4))
    if group.rank == 0:
        print(x[0], group.plan("all-reduce", 64).why[0])
"""


@pytest.mark.parametrize("others", [0, 1])
def test_own_schedule_by_configuration(tmp_path, others):
    """By environment variables alone; the last rank is given the same file, or another one."""
    for name, ranks_apart in (("a", 1), ("b", -1)):
        (tmp_path / name).write_text(tasks.neighbours(ranks_apart).text)
    common = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    common["WEFT_ALGORITHM"] = "all-reduce=mine"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", OWN],
            env={**os.environ, **common, "RANK": str(rank), "WEFT_SCHEDULES": f"mine={tmp_path / name}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, name in enumerate(["a", "a", "ab"[others]])
    ]
    try:
        outputs = [rank.communicate(timeout=DEADLINE_S) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    if others:
        assert all("was given schedules (name=hash) mine=" in errors for _, errors in outputs), outputs
    else:
        assert outputs[0][0].startswith("3.0 mine: chosen, the only one"), outputs


@with_ranks
@pytest.mark.parametrize("transport", ["shm"])
def test_reproducible(teams, ranks, transport):
    results = [teams.get(ranks, placement).run(tasks.reproducible) for placement in (transport, "tcp")]
    bits = {bits for outputs in results for of_rank, _ in outputs for bits in of_rank}
    assert len(bits) == 1
    refusal = results[0][0][1]
    assert "'ring'" in refusal.replace('"', "'")
    assert "two-shot" in refusal


@with_ranks
@pytest.mark.parametrize("transport", ["shm"])
def test_declared_domains(team):
    (first, refusal), *others = team.run(tasks.declared_domains)
    assert all(results == first for results, _ in others)
    assert "level 0 of the domains names 1 ranks, but there are 4" in refusal


@with_transports
@with_ranks
def test_declared_units(team):
    assert all("level 0 names 1 ranks, but the group has 4" in refusal for refusal in team.run(tasks.declared_units))
