"""Calls of torch.distributed for the measured collectives: sum, root 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from weft_lab.bench.collectives import BenchCollective, partner
from weft_lab.bench.elements import BFLOAT16, ElementType

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist


def tensor(array: np.ndarray, dtype: ElementType) -> torch.Tensor:
    """The tensor whose memory the array is."""
    import torch

    plain = torch.from_numpy(array)
    return plain.view(torch.bfloat16) if dtype.name == BFLOAT16 else plain


def array(tensor: torch.Tensor) -> np.ndarray:
    """The array whose memory a tensor is."""
    import torch

    plain = tensor.view(torch.uint16) if tensor.dtype is torch.bfloat16 else tensor
    found: np.ndarray = plain.numpy()
    return found


def torch_call(
    collective: BenchCollective, given: torch.Tensor, result: torch.Tensor, group: dist.ProcessGroup | None = None
) -> Callable[[], object]:
    """The blocking call that writes `result` from `given`, in a group of all ranks."""
    import torch.distributed as dist

    rank, ranks = dist.get_rank(), dist.get_world_size()
    blocks_in = list(given.chunk(ranks)) if rank == 0 and collective.name == "scatter" else None
    blocks_out = list(result.chunk(ranks)) if rank == 0 and collective.name == "gather" else None
    calls: dict[str, Callable[[], object]] = {
        "all-reduce": lambda: dist.all_reduce(given, group=group),
        "reduce": lambda: dist.reduce(given, 0, group=group),
        "broadcast": lambda: dist.broadcast(given, 0, group=group),
        "all-gather": lambda: dist.all_gather_into_tensor(result, given, group=group),
        "reduce-scatter": lambda: dist.reduce_scatter_tensor(result, given, group=group),
        "all-to-all": lambda: dist.all_to_all_single(result, given, group=group),
        "gather": lambda: dist.gather(given, blocks_out, 0, group=group),
        "scatter": lambda: dist.scatter(result, blocks_in, 0, group=group),
        "barrier": lambda: dist.barrier(group=group),
        "ping-pong": lambda: _ping_pong(rank, partner(rank, ranks), given, result, group),
    }
    return calls[collective.name]


def _ping_pong(
    rank: int, other: int | None, given: torch.Tensor, result: torch.Tensor, group: dist.ProcessGroup | None
) -> None:
    import torch.distributed as dist

    if other is None:
        return
    if rank < other:
        dist.send(given, other, group=group)
    dist.recv(result, other, group=group)
    if rank > other:
        dist.send(given, other, group=group)
