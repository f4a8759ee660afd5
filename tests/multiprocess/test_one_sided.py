"""Tests of one-sided operations on symmetric memory between processes."""

import signal
import time
from pathlib import Path

import pytest
import tasks_one_sided as tasks

from weft import cli
from weft_lab import demo
from weft_lab.bench import one_sided, rows

EXAMPLE = Path(demo.__file__).with_name("all_reduce_by_hand.py")

on_every_transport = pytest.mark.parametrize("transport", ["shm", "tcp"])


@on_every_transport
@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize(
    "task",
    [tasks.put_and_get, tasks.layouts, tasks.handles, tasks.mistakes, tasks.views, tasks.interrupt],
    ids=lambda task: task.__name__,
)
def test_one_sided(team, task):
    team.run(task)


@on_every_transport
@pytest.mark.parametrize("ranks", [3])
def test_order(team):
    team.run(tasks.order, 50)


@on_every_transport
@pytest.mark.parametrize("ranks", [8])
def test_atomics_under_contention(team):
    met = [value for values in team.run(tasks.contention, 50) for value in values]
    assert len(set(met)) == len(met) == 8 * 50


@on_every_transport
def test_benchmark_verifies_timed_results(transport, tmp_path, capsys):
    path = tmp_path / "put.json"
    effort = ["--sizes", "8,100000", "--iterations", "20", "--rounds", "2"]
    assert cli.main(["bench", "put", "--transport", transport, *effort, "--json", str(path)]) == 0
    found = rows.read(path)
    assert [(row.bytes, row.collective) for row in found] == [
        (size, operation) for size in (8, 100_000) for operation in one_sided.OPERATIONS
    ]
    for row in found:
        assert (row.wrong, row.verified, row.transport, row.samples) == (0, True, transport, 20)
        assert 0 < row.min_us <= row.median_us
    assert "put-signal" in capsys.readouterr().out


@on_every_transport
@pytest.mark.parametrize("ranks", [3])
def test_wait_ends_at_timeout_or_peer_loss(teams, ranks, transport):
    for timeout, kind in ((0.3, "Timeout"), (30, "PeerLost")):
        team = teams.get(ranks, transport)
        try:
            team.run(tasks.make_buffer)
            team.start(tasks.wait_for_a_signal, timeout)
            if kind == "PeerLost":
                time.sleep(0.2)
                team.signal(2, signal.SIGKILL)
            for raised, text in team.collect([0, 1], deadline=10):
                assert raised == kind, text
                if kind == "Timeout":
                    assert 'signal 0 of symmetric buffer "awaited" to be >= 1' in text
        finally:
            team.kill()


@on_every_transport
@pytest.mark.parametrize("ranks", [3])
def test_end_of_rank_ends_gets_and_atomics(teams, ranks, transport):
    team = teams.get(ranks, transport)
    try:
        team.run(tasks.make_buffer)
        team.start(tasks.get_until_it_fails)
        time.sleep(0.2)
        team.signal(2, signal.SIGKILL)
        assert {kind for kind, _ in team.collect([0, 1], deadline=10)} == {"PeerLost"}
    finally:
        team.kill()


def test_handwritten_all_reduce_has_under_sixty_lines():
    assert len(EXAMPLE.read_text().splitlines()) < 60
