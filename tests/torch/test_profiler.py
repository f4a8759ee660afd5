"""Tests of named ranges in torch's profiler."""

from __future__ import annotations

import torch
import torch.distributed as dist


def test_operations_are_ranges_with_shapes_and_bytes(workers) -> None:
    workers.run(2, ranges_job)


def ranges_job(rank: int, size: int) -> None:
    x, wide = torch.ones(3, 5), torch.ones(2 * size, 4)
    blocks = [torch.empty(2, 4) for _ in range(size)]
    calls = {
        "all_reduce": lambda: dist.all_reduce(x),
        "reduce": lambda: dist.reduce(x, 0),
        "broadcast": lambda: dist.broadcast(x, 0),
        "all_gather": lambda: dist.all_gather(blocks, torch.ones(2, 4)),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(torch.empty(2, 4), wide),
        "all_to_all": lambda: dist.all_to_all_single(torch.empty_like(wide), wide),
        "gather": lambda: dist.gather(torch.ones(2, 4), blocks if rank == 0 else None),
        "scatter": lambda: dist.scatter(torch.empty(2, 4), blocks if rank == 0 else None),
        "barrier": lambda: dist.barrier(),
        "send" if rank == 0 else "recv": lambda: dist.send(x, 1) if rank == 0 else dist.recv(x, 0),
    }
    with torch.profiler.profile(record_shapes=True) as profile:
        for call in calls.values():
            call()
        dist.all_reduce(x, async_op=True).wait()
    ranges = [event for event in profile.events() if event.name.startswith("weft:")]
    assert [event.name for event in ranges] == [f"weft:{name}" for name in [*calls, "all_reduce"]]
    by_name = {event.name.removeprefix("weft:"): event for event in ranges}
    for name in ("all_reduce", "reduce", "broadcast", "send" if rank == 0 else "recv"):
        assert (by_name[name].input_shapes, by_name[name].kwinputs["bytes"]) == ([[3, 5]], 60), name
    assert by_name["all_gather"].input_shapes == [[2, 4]] * size
    assert by_name["reduce_scatter"].input_shapes == [[2, 4]]
    assert by_name["barrier"].input_shapes == []
    whole = {"all_gather": size * 32, "reduce_scatter": size * 32, "all_to_all": size * 32, "barrier": 0}
    assert {name: by_name[name].kwinputs["bytes"] for name in whole} == whole
