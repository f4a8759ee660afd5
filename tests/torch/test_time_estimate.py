"""Tests of torch's time estimates: collectives that are simulated, not carried out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import weft
from weft.profiles import Profile

pytestmark = pytest.mark.skipif(not hasattr(dist, "_time_estimator"), reason="torch estimates times since 2.15")

ELEMENTS = 1 << 18


def test_collectives_are_estimated(workers) -> None:
    for size in (1, 2, 3):
        found = workers.run(size, estimating_job)
        assert all(one == found[0] for one in found), "the same on all ranks"
        assert all((seconds > 0) == (size > 1) for seconds in found[0].values()), found[0]
        if size > 1:
            assert found[0]["twice"] == 2 * found[0]["all_reduce"] > found[0]["small"]


def test_estimate_follows_the_measured_machine(workers, tmp_path) -> None:
    path = tmp_path / "profile.json"
    workers.run(2, profile_job, str(path))
    slow = Profile.load(path)
    Profile(slow.topology, {"host": {"read_s_per_byte": 1e-6}}, slow.table).save(path)
    (before, after), _ = workers.run(2, machines_job, str(path))
    assert after > 10 * before


def test_messages_are_refused_and_end_the_estimate(workers) -> None:
    workers.run(2, message_job)


def test_sparse_sums_are_refused_and_end_the_estimate(workers) -> None:
    workers.run(2, sparse_job)


def estimated(body: Callable[[], Any]) -> float:
    with dist._time_estimator(device=torch.device("cpu")) as estimate:
        body()
    return estimate.estimated_time


def estimating_job(rank: int, size: int) -> dict[str, float]:
    ones, blocks = torch.ones(ELEMENTS), [torch.zeros(ELEMENTS) for _ in range(size)]
    own = torch.zeros(ELEMENTS)
    bodies: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: dist.all_reduce(ones),
        "async": lambda: dist.all_reduce(ones, async_op=True).wait(),
        "twice": lambda: [dist.all_reduce(ones) for _ in range(2)],
        "small": lambda: dist.all_reduce(ones[:2]),
        "all_gather": lambda: dist.all_gather(blocks, ones),
        "reduce_scatter": lambda: dist.reduce_scatter(own, [ones] * size),
        "all_to_all": lambda: dist.all_to_all(blocks, [ones] * size),
        "broadcast": lambda: dist.broadcast(own, size - 1),
        "reduce": lambda: dist.reduce(ones, 0),
        "gather": lambda: dist.gather(ones, blocks if rank == 0 else None),
        "scatter": lambda: dist.scatter(own, [ones] * size if rank == 0 else None),
        "barrier": dist.barrier,
    }
    found = {name: estimated(body) for name, body in bodies.items()}
    assert ones.eq(1).all() and not own.any() and not any(one.any() for one in blocks), "nothing was carried out"
    dist.all_reduce(ones)
    assert ones.eq(size).all()
    return found


def profile_job(rank: int, _size: int, path: str) -> None:
    from weft.torch.lookup import backend_of

    if rank == 0:
        weft.api.group.Group(backend_of(None).weft_group).plan("all-reduce", 1 << 20).save(path)


def machines_job(_rank: int, _size: int, path: str) -> tuple[float, float]:
    import os

    ones = torch.ones(ELEMENTS)
    before = estimated(lambda: dist.all_reduce(ones))
    os.environ["WEFT_PROFILE"] = path
    try:
        return before, estimated(lambda: dist.all_reduce(ones))
    finally:
        del os.environ["WEFT_PROFILE"]


def message_job(rank: int, _size: int) -> None:
    with pytest.raises(weft.UnsupportedError, match="message between two ranks is not predicted"):
        estimated(lambda: dist.send(torch.ones(2), 1 - rank))
    ones = torch.ones(2)
    dist.all_reduce(ones)
    assert ones.tolist() == [2, 2]


def sparse_job(_rank: int, _size: int) -> None:
    with pytest.raises(weft.UnsupportedError, match="sparse tensor"):
        estimated(lambda: dist.all_reduce(torch.ones(2).to_sparse()))
    ones = torch.ones(2)
    dist.all_reduce(ones)
    assert ones.tolist() == [2, 2]
