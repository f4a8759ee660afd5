"""Tests of the tuner on running groups: agreement of ranks, and use of the profile later."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import tasks_tuning as tasks
from tasks_plans import everything_to_all
from team import free_port

from weft.profiles import Profile

on_every_transport = pytest.mark.parametrize("transport", ["shm", "tcp"])
with_ranks = pytest.mark.parametrize("ranks", [2, 3])

DEADLINE_S = 120


@on_every_transport
@with_ranks
def test_every_rank_has_choices_of_rank_0(team):
    answers = team.run(tasks.agree_on_what_rank_0_says)
    assert answers == [{"from": 0, "text": "äöü", "list": [1, None, 2.5]}] * team.size


@on_every_transport
@with_ranks
def test_every_rank_gets_the_same_profile(team):
    outcomes = team.run(tasks.tune)
    assert outcomes.count(outcomes[0]) == team.size
    text, measured = outcomes[0]
    table = Profile.from_json(text).table
    assert set(table) == {"all-reduce", "broadcast"}
    assert any(seconds is not None and seconds > 0 for seconds in measured)


@on_every_transport
@pytest.mark.parametrize("ranks", [2])
def test_own_schedule_is_measured_at_every_size(team):
    outcomes = team.run(tasks.tune_user_schedules)
    assert outcomes == [outcomes[0]] * team.size
    text, chosen, errors = outcomes[0]
    assert all(algorithm == "mine" or "mine" in why for algorithm, why in chosen)
    profile = Profile.from_json(text)
    wins = any(row.algorithm == "mine" for row in profile.table["all-reduce"])
    assert list(profile.schedules) == ["mine"] * wins
    assert errors == [
        "the schedule 'theirs' is for broadcast, but tuned are all-reduce",
        "the schedule 'theirs' is for broadcast with root 1, but tuned are calls with root 0",
    ]


@on_every_transport
@with_ranks
def test_a_group_runs_by_its_profile(team, tmp_path):
    total = float(sum(range(1, team.size + 1)))
    in_flight = 8 if team.transport == "tcp" else 2  # without a choice, what the transport's slots allow
    expected = [("ring", in_flight), ("two-shot", 1)], {total}
    assert team.run(tasks.run_by_profile, str(tmp_path)) == [expected] * team.size


@on_every_transport
@with_ranks
def test_a_probe_is_short_and_all_ranks_agree(team):
    outcomes = team.run(tasks.probe)
    names, in_time, values, why = outcomes[0]
    assert [outcome[0] for outcome in outcomes] == [names] * team.size
    assert in_time
    assert values == {float(sum(range(1, team.size + 1)))}
    assert any("profile" in line for line in why)


TUNE = [sys.executable, "-m", "weft.cli", "tune"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot be read: No such file"),
        ("format 2\ncollective all-reduce", 'the schedule "mine": line 2'),
        (everything_to_all(3).text, 'the schedule "mine" has 3 programs, but the group has 2 ranks'),
    ],
)
def test_schedule_that_cannot_be_tuned_is_reported(tmp_path, text, says):
    if text is not None:
        (tmp_path / "mine.txt").write_text(text)
    command = [*TUNE, "--quick", "--ranks", "2", "--schedule", f"mine={tmp_path}/mine.txt"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode in (1, 2)
    assert "weft tune: " in done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


PLANS = """
import json, weft
with weft.init() as group:
    plans = [group.plan("all-reduce", size) for size in (4096, 1 << 20)]
    if group.rank == 0:
        print(json.dumps([[plan.name, " ".join(plan.why)] for plan in plans]))
"""


def test_later_group_loads_tuned_profile(tmp_path):
    port = str(free_port())
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    mine = tmp_path / "mine.txt"
    everything_to_all(2).save(mine)
    command = [*TUNE, "--quick", "--force", "--ranks", "2", "--json", "--schedule", f"mine={mine}"]
    tuned = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    answer = json.loads(tuned.stdout)
    assert answer["path"] and answer["profile"]["origin"]["when"]
    assert all(
        one["candidate"]["algorithm"] == "mine" or "mine" in one["why"] for one in answer["chosen"]["all-reduce"]
    )
    profile = Profile.from_json(json.dumps(answer["profile"]))
    # The profile contains all that the later group needs of it.
    mine.unlink()
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", PLANS],
            env={
                **environment,
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        output = ranks[0].communicate(timeout=DEADLINE_S)[0]
        ranks[1].wait(DEADLINE_S)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    for (name, why), size in zip(json.loads(output), (4096, 1 << 20), strict=True):
        row = profile.row("all-reduce", size)
        assert row is not None
        assert name == row.algorithm
        assert "profile" in why
