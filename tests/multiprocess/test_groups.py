"""Tests of messages, handles, sub-groups and kinds of memory."""

import pytest
import tasks_groups as tasks
import tasks_tensors as tensors
from team import free_port

on_every_transport = pytest.mark.parametrize("transport", ["shm", "tcp"])
with_ranks = pytest.mark.parametrize("ranks", [2, 3])


@on_every_transport
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("elements", [0, 1, 63, 100_001, 1_000_003])
def test_send_around(team, elements):
    team.run(tasks.send_around, elements)


@on_every_transport
@with_ranks
@pytest.mark.parametrize("task", [tasks.receive_by_tag, tasks.receive_columns])
def test_messages(team, task):
    team.run(task)


@on_every_transport
@pytest.mark.parametrize("ranks", [2, 4])
def test_receive_from_any(team):
    assert team.run(tasks.receive_from_any)[0] == list(range(1, team.size))


@on_every_transport
@with_ranks
def test_many_under_way(team):
    team.run(tasks.many_under_way, 40)


@on_every_transport
@with_ranks
@pytest.mark.parametrize(
    "task",
    [
        tasks.dropped_handle,
        tasks.wait_with_timeout,
        tasks.layouts,
        tasks.overlapping,
        tasks.nan_propagates,
        tasks.structured,
        tasks.new_groups,
        tasks.symmetric,
        tasks.interrupt,
        tensors.tensors,
    ],
    ids=lambda task: task.__name__,
)
def test_groups(team, task):
    team.run(task)


@on_every_transport
@pytest.mark.parametrize("ranks", [2, 5])
def test_subgroups(team):
    team.run(tasks.subgroups)


@on_every_transport
@with_ranks
def test_threads_with_groups(team):
    team.run(tasks.threads_with_groups, 50)


@pytest.mark.parametrize("transport", ["shm"])
@with_ranks
def test_other_threads_run_during_a_wait(team, tmp_path):
    team.run(tasks.release_the_interpreter, str(tmp_path / "has run"))


@pytest.mark.parametrize("transport", ["shm"])
@with_ranks
def test_several_worlds(team):
    address = f"127.0.0.1:{free_port()}"
    for _ in range(2):
        team.run(tasks.several_worlds, address)


@pytest.mark.parametrize("transport", ["shm"])
@with_ranks
def test_a_store_of_torch(team, tmp_path):
    team.run(tensors.torch_store, str(tmp_path / "store"))
