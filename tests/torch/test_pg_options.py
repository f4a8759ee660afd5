"""Tests of settings of one process group, by `pg_options=`."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend

import weft
import weft.torch
from weft.torch import registration
from weft.torch.lookup import backend_of

RING = {"algorithm": {"all-reduce": "ring"}}


def test_settings_of_a_group(workers) -> None:
    workers.run(2, settings_job)


def test_settings_of_the_default_group(workers, tmp_path) -> None:
    workers.run(2, default_group_job, str(tmp_path / "store"))


def test_options_that_differ(workers) -> None:
    for message in workers.run(2, differing_job):
        assert "reproducible" in message


def test_wrong_options(workers) -> None:
    workers.run(1, wrong_job)


def algorithm(group: dist.ProcessGroup | None) -> str:
    explanation = backend_of(group).weft_group.explain("all-reduce", 1 << 20, "float32", False)
    return explanation.algorithm


def settings_job(rank: int, _size: int) -> None:
    options = weft.torch.Options(**RING)
    groups = [dist.new_group(pg_options=options), dist.split_group(split_ranks=[[0, 1]], pg_options=options)]
    for group in groups:
        assert algorithm(group) == "ring"
        tensor = torch.tensor([float(rank)])
        dist.all_reduce(tensor, group=group)
        assert tensor.item() == 1.0
    assert algorithm(None) != "ring"
    if registration._accepts_python_backends() and rank == 0:
        shorter = weft.torch.Options(algorithm={"all-reduce": "direct"}, timeout=timedelta(seconds=20))
        alone = dist.shrink_group([1], groups[0], pg_options=shorter)
        assert backend_of(alone).options._timeout == timedelta(seconds=20)
        assert algorithm(alone) == "direct"


def default_group_job(rank: int, size: int, path: str) -> None:
    dist.destroy_process_group()
    store = dist.FileStore(path, size)
    dist.init_process_group("weft", store=store, rank=rank, world_size=size, pg_options=weft.torch.Options(**RING))
    assert algorithm(None) == "ring"
    dist.barrier()


def differing_job(rank: int, _size: int) -> str:
    group = None
    with pytest.raises(weft.Error) as raised:
        group = dist.new_group(pg_options=weft.torch.Options(reproducible=rank == 0))
        dist.all_reduce(torch.ones(1), group=group)
    return str(raised.value)


def wrong_job(_rank: int, _size: int) -> None:
    with pytest.raises(TypeError, match="algoritm"):
        weft.torch.Options(algoritm="ring")
    with pytest.raises(weft.ConfigError, match="REPRODUCIBLE='perhaps'"):
        weft.torch.Options(reproducible="perhaps")
    with pytest.raises(weft.ArgumentError, match=r"expected weft\.torch\.Options"):
        dist.new_group(pg_options={"wire": "bf16"})
    with pytest.raises(weft.ArgumentError, match=r"expected weft\.torch\.Options"):
        dist.new_group(pg_options=type("OfAnother", (Backend.Options,), {})("gloo"))
    dist.new_group(pg_options=Backend.Options("weft", timeout=timedelta(seconds=5)))  # has no settings
