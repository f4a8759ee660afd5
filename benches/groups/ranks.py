"""The ranks of a measurement of groups, each a process."""

from __future__ import annotations

import os
import re
import resource
import socket
import statistics
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import multiprocessing

__all__ = ["Groups", "measure"]

_TIMEOUT = timedelta(seconds=300)
_PARTS = ("Pss_Shmem", "Pss_Anon")


@dataclass
class Groups:
    """The resources of this many groups of all ranks, on the rank where that was most."""

    library: str
    ranks: int
    groups: int
    new_group_ms: float
    """The median of `new_group`."""
    made_kib: float
    """Memory that a group has touched once it is made, shared memory by its part."""
    used_kib: float
    """The same after an all-reduce of 4 bytes."""
    descriptors: float
    """Of each group, then."""
    failure: str = ""


def measure(library: str, ranks: int, groups: int, descriptors_max: int) -> Groups:
    """Makes `groups` groups, all of which stay, and calls an all-reduce of 4 bytes in each."""
    results: Any = multiprocessing.get_context("spawn").SimpleQueue()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    arguments = (library, ranks, groups, descriptors_max, port, results)
    multiprocessing.spawn(_rank, arguments, ranks)
    found = [results.get() for _ in range(ranks)]
    failed = [row for row in found if row.failure]
    return max(failed or found, key=lambda row: row.used_kib)


def _rank(rank: int, library: str, ranks: int, groups: int, descriptors_max: int, port: int, results: Any) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors_max, descriptors_max))
    row = Groups(library, ranks, groups, 0.0, 0.0, 0.0, 0.0)
    dist.init_process_group(
        library, init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks, timeout=_TIMEOUT
    )
    try:
        _fill(row)
    except Exception as error:
        row.failure = f"{type(error).__name__}: {error}".splitlines()[0]
    results.put(row)
    if not row.failure:
        dist.barrier()
        dist.destroy_process_group()
    else:
        os._exit(0)  # the others fail as well, and would be waited for


def _fill(row: Groups) -> None:
    ranks = list(range(row.ranks))
    warm = dist.new_group(ranks)
    for group in (None, warm):
        dist.all_reduce(torch.ones(1), group=group)
    memory, descriptors = _touched_kib(), _descriptors()
    groups, times = [], []
    for _ in range(row.groups):
        began = time.perf_counter()
        groups.append(dist.new_group(ranks))
        times.append(time.perf_counter() - began)
    row.new_group_ms = statistics.median(times) * 1000
    row.made_kib = (_touched_kib() - memory) / row.groups
    for group in groups:
        ones = torch.ones(1)
        dist.all_reduce(ones, group=group)
        assert ones.item() == row.ranks, "the sum is wrong"
    row.used_kib = (_touched_kib() - memory) / row.groups
    row.descriptors = (_descriptors() - descriptors) / row.groups


def _touched_kib() -> int:
    text = Path("/proc/self/smaps_rollup").read_text()
    found = (re.search(rf"^{part}:\s+(\d+)", text, re.MULTILINE) for part in _PARTS)
    return sum(int(match[1]) for match in found if match)


def _descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
