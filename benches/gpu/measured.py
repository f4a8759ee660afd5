"""Parts of measurements on a GPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["MIB", "copies", "everyone", "filled", "median"]

MIB = 1 << 20
_COPIES = 5


def median(call: Callable[[], object], repeats: int, before: int = 2) -> float:
    """The median time of a call, in seconds, after some that do not count."""
    times = []
    for number in range(repeats + before):
        began = time.perf_counter()
        call()
        if number >= before:
            times.append(time.perf_counter() - began)
    return statistics.median(times)


def filled(elements: int, value: float) -> Tensor:
    """A vector on the GPU."""
    return torch.full((elements,), value, device="cuda")


def everyone(value: object, group: Any = None) -> list[Any]:
    """The values of all ranks."""
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value, group=group)
    return values


def copies(nbytes: int, pinned: Sequence[Tensor]) -> dict[str, float]:
    """Rates of copies of pinned memory, in bytes a second: each way, and both at a time."""
    there = [torch.empty(nbytes, dtype=torch.uint8, device="cuda") for _ in range(2)]
    streams = [torch.cuda.Stream() for _ in range(2)]

    def copy(*directions: int) -> None:
        for direction in directions:
            with torch.cuda.stream(streams[direction]):
                if direction:
                    there[1].copy_(pinned[1], non_blocking=True)
                else:
                    pinned[0].copy_(there[0], non_blocking=True)
        torch.cuda.synchronize()

    ways = {"to host": (0,), "to device": (1,), "both": (0, 1)}
    return {name: len(way) * nbytes / median(lambda way=way: copy(*way), _COPIES) for name, way in ways.items()}
