"""What ranks run by: forced, profiled, reproducible, of one's own; alike on all ranks."""

import pytest
import tasks_plans as tasks
from team import free_port

with_transports = pytest.mark.parametrize("transport", ["shm", "tcp"])
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
    for told in team.run(tasks.forced_differently):
        assert "by ring" in told
        assert "by two-shot" in told


@with_transports
@with_ranks
def test_replayed(team, transport, tmp_path):
    team.run(tasks.replayed, transport, f"127.0.0.1:{free_port()}", str(tmp_path / "plan.json"))


@with_transports
@pytest.mark.parametrize("ranks", [2, 3])
def test_own_schedule(team):
    team.run(tasks.own_schedule)


@with_ranks
@pytest.mark.parametrize("transport", ["shm"])
def test_reproducible(teams, ranks, transport):
    results = [teams.get(ranks, placement).run(tasks.reproducible) for placement in (transport, "tcp")]
    bits = {bits for outputs in results for of_rank, _ in outputs for bits in of_rank}
    assert len(bits) == 1
    refusal = results[0][0][1]
    assert "'ring'" in refusal.replace('"', "'")
    assert "two-shot" in refusal


@with_transports
@with_ranks
def test_declared_units(team):
    assert all("level 0 names 1 ranks, but the group has 4" in refusal for refusal in team.run(tasks.declared_units))
