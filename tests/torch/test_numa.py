"""Tests of the placement of divided parameters at NUMA nodes: see make test-numa."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torch
import worker_pool
from torch import nn

import weft.torch
from weft import _weft

PAGES = 512
nodes = _weft.domains().nodes


@pytest.mark.skipif(len(nodes) < 2, reason="one NUMA node here: see make test-numa")
def test_shares_of_one_copy_lie_near_their_owners(workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "DEADLINE_SECONDS", 600.0)  # an emulated processor imports torch
    for pages in workers.run(2, sharing_job):
        assert all(pages.get(node, 0) >= PAGES // 2 - 1 for node in (0, 1)), pages


def sharing_job(rank: int, _size: int) -> dict[int, int]:
    """The result of `pages_by_node` on ranks that are bound to nodes."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, nodes[rank])
    try:
        return pages_by_node()
    finally:
        os.sched_setaffinity(0, before)


def pages_by_node() -> dict[int, int]:
    """The pages of the parameters by node, as this rank sees them after a step."""
    net = nn.Linear(1024, PAGES, bias=False)  # a page in each row
    model = weft.torch.DataParallel(net, shard=1, parameters="host")
    optimizer = weft.torch.Overlapped(torch.optim.SGD(model.parameters(), lr=0.1), model)
    model(torch.ones(1, 1024)).sum().backward()
    optimizer.step()
    model.flush()
    place = net.weight.data_ptr()
    for line in Path("/proc/self/numa_maps").read_text().splitlines():
        begin, *_ = line.split()
        pages = {int(node): int(count) for node, count in re.findall(r" N(\d+)=(\d+)", line)}
        if int(begin, 16) <= place < int(begin, 16) + 4096 * max(1, sum(pages.values())):
            return pages
    raise AssertionError(f"nothing is mapped at {place:#x}")
