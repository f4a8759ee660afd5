"""Tests of all collectives, element types and operations: reference, bitwise equality of ranks."""

import secrets

import pytest
import tasks_collectives as tasks
from drawn import drawn

from weft.schedule import algorithms

TASKS = [
    tasks.all_reduce,
    tasks.reduce,
    tasks.broadcast,
    tasks.all_gather_to_array,
    tasks.all_gather_v,
    tasks.reduce_scatter,
    tasks.reduce_scatter_v,
    tasks.all_to_all,
    tasks.all_to_all_v,
    tasks.gather,
    tasks.gather_v,
    tasks.scatter,
    tasks.scatter_v,
    tasks.premul_sum,
]
COUNTS = [0, 1, 3, 17, 1031]
FEW_COUNTS = [1, 515]
LARGE_COUNTS = [70_001]
OF_COLLECTIVE = {
    "all-reduce": [tasks.all_reduce, tasks.premul_sum],
    "reduce": [tasks.reduce],
    "broadcast": [tasks.broadcast],
    "all-gather": [tasks.all_gather_to_array],
    "reduce-scatter": [tasks.reduce_scatter],
    "all-to-all": [tasks.all_to_all],
    "gather": [tasks.gather],
    "scatter": [tasks.scatter],
}
OF_ANY_SIZES = {
    "all-gather": [tasks.all_gather_v],
    "reduce-scatter": [tasks.reduce_scatter_v],
    "all-to-all": [tasks.all_to_all_v],
    "gather": [tasks.gather_v],
    "scatter": [tasks.scatter_v],
}


def check(team, task, counts, how):
    results = team.run(task, secrets.randbits(32), counts, how)
    assert all(result == results[0] for result in results), "ranks have different bits"


def named(task):
    return task.__name__


@pytest.mark.parametrize("task", TASKS, ids=named)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_everything(team, task):
    check(team, task, COUNTS, {})


@pytest.mark.parametrize("task", TASKS, ids=named)
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_large(team, task):
    check(team, task, LARGE_COUNTS, {})


@pytest.mark.parametrize("task", TASKS, ids=named)
@pytest.mark.parametrize("ranks", drawn([5, 6, 7, 8, 9], 2))
@pytest.mark.parametrize("transport", ["auto"])
def test_more_ranks(team, task):
    check(team, task, FEW_COUNTS, {})


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_barrier_holds_until_all_have_entered(team):
    for stamps in zip(*team.run(tasks.barrier, 100), strict=True):
        assert max(entered for entered, _ in stamps) <= min(left for _, left in stamps)


@pytest.mark.parametrize("algorithm", algorithms(), ids=lambda a: f"{a.collective}-{a.name}")
@pytest.mark.parametrize("ranks", drawn([2, 3, 5], 1))
@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_each_algorithm(team, algorithm, transport):
    if algorithm.symmetric or (algorithm.mapped == "all" and transport == "tcp"):
        pytest.skip("needs memory that ordinary arrays over this transport do not have")
    uneven = OF_ANY_SIZES.get(algorithm.collective, []) if algorithm.per_rank_sizes else []
    for task in OF_COLLECTIVE.get(algorithm.collective, []) + uneven:
        check(team, task, FEW_COUNTS, {"algorithm": algorithm.name})
