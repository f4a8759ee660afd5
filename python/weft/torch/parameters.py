"""Broadcast of one rank's parameters, or of the average of all ranks'."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from weft.errors import ArgumentError
from weft.torch.lookup import backend_of
from weft.torch.patches.modes import outside_of_modes

__all__ = ["broadcast_parameters"]

Root = int | Literal["lowest-loss", "average"]


@outside_of_modes
@torch.no_grad()
def broadcast_parameters(
    model: nn.Module, root: Root = 0, *, loss: float | Tensor | None = None, group: ProcessGroup | None = None
) -> int | None:
    """Sets the parameters and buffers of every rank to those of one rank, or to their average.

    Every rank calls it with the same model and `root`.

    Args:
        model: The model.
        root: The rank, in the group, whose values all ranks get; or `lowest-loss`, the rank that
            passes the lowest loss, the lower rank of equal ones; or `average`, the mean over ranks
            of floating point and complex values, and rank 0's of all others.
        loss: With `lowest-loss`, this rank's loss: a number, or a tensor of one element. NaN is
            higher than any number.
        group: The process group; the default group if not given.

    Returns:
        The rank whose parameters all ranks have now; None for the average.

    Raises:
        weft.ArgumentError: `root` is none of these, a loss is missing or not allowed, or no rank
            has a loss that is a number.
        weft.Desync: Another rank passes another model or `root`.
        weft.PeerLost: A rank of the group ended or cannot be reached.
        weft.Timeout: Another rank did not make the call in time.
        weft.Aborted: The group was aborted.

    Examples:
        >>> best = weft.torch.broadcast_parameters(net, "lowest-loss", loss=0.5)
        >>> assert 0 <= best < dist.get_world_size()
    """
    backend_of(group)
    size = dist.get_world_size(group)
    tensors = [tensor.detach() for tensor in (*model.parameters(), *model.buffers())]
    if (loss is not None) != (root == "lowest-loss"):
        raise ArgumentError(f"loss={loss} is not allowed with root={root!r}: it is for root='lowest-loss'")
    if root == "average":
        _average([tensor for tensor in tensors if _has_mean(tensor)], group)
        _broadcast([tensor for tensor in tensors if not _has_mean(tensor)], 0, group)
        return None
    if root == "lowest-loss":
        root = _lowest(float(loss), size, group)  # type: ignore[arg-type]  # checked above
    if not isinstance(root, int) or not 0 <= root < size:
        raise ArgumentError(
            f"root={root!r} is not allowed: expected a rank from 0 to {size - 1}, 'lowest-loss' or 'average'"
        )
    _broadcast(tensors, root, group)
    return root


def _has_mean(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _average(tensors: list[Tensor], group: ProcessGroup | None) -> None:
    works = [dist.all_reduce(tensor, dist.ReduceOp.AVG, group=group, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()


def _broadcast(tensors: list[Tensor], root: int, group: ProcessGroup | None) -> None:
    works = [dist.broadcast(tensor, group=group, group_src=root, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()  # type: ignore[union-attr]  # as above


def _lowest(loss: float, size: int, group: ProcessGroup | None) -> int:
    losses = torch.empty(size, dtype=torch.float64, device="cpu")
    own = torch.tensor([loss], dtype=torch.float64, device="cpu")
    dist.all_gather_into_tensor(losses, own, group=group)
    best = min(range(size), key=lambda rank: (math.isnan(losses[rank]), float(losses[rank]), rank))
    if math.isnan(losses[best]):
        raise ArgumentError("loss=nan on all ranks: expected a number on one of them at least")
    return best
