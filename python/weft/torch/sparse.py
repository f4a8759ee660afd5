"""All-reduce of sparse (COO) tensors: all-gather of indices and values, summation on every rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import AllgatherOptions

from weft.errors import ArgumentError, UnsupportedError
from weft.torch.arguments import reduction
from weft.torch.work import WeftWork

__all__ = ["all_reduce_sparse"]

_AllGather = Callable[[list[list[Tensor]], list[Tensor], Any], WeftWork | None]
_OPERATIONS = ("sum", "avg")


def all_reduce_sparse(tensor: Tensor, size: int, options: Any, all_gather: _AllGather) -> WeftWork | None:
    """Starts the reduction. The result is coalesced.

    Waits for the other ranks' indices, even if the operation is asynchronous.
    """
    if not tensor.is_cpu:
        raise UnsupportedError(f"sparse tensors on {tensor.device} are not supported: expected a tensor of the CPU")
    op = reduction(options.reduceOp)
    if op not in _OPERATIONS:
        raise UnsupportedError(f"cannot reduce sparse tensors by {op}: expected one of {', '.join(_OPERATIONS)}")
    if tensor.layout is not torch.sparse_coo:
        raise UnsupportedError(f"tensors with layout {tensor.layout} are not supported: expected strided or sparse COO")
    mine = tensor.detach().coalesce()
    counts = _gathered_counts(mine, size, options, all_gather)
    gathering = AllgatherOptions()
    gathering.timeout, gathering.asyncOp = options.timeout, False
    indices = [torch.empty(mine.sparse_dim(), count, dtype=torch.int64, device="cpu") for count in counts]
    all_gather([indices], [mine.indices().contiguous()], gathering)
    gathering.asyncOp = options.asyncOp
    tail = mine.values().shape[1:]
    values = [torch.empty(count, *tail, dtype=mine.dtype, device="cpu") for count in counts]
    work = all_gather([values], [mine.values().contiguous()], gathering)

    def finish() -> None:
        added = torch.cat(values)
        if op == "avg" and added.dtype in (torch.float16, torch.bfloat16):
            added = added.double()  # the sum may exceed the range of 16 bits while the average does not
        total = torch.sparse_coo_tensor(
            torch.cat(indices, 1), added, tensor.shape, dtype=added.dtype, device="cpu"
        ).coalesce()
        with torch.no_grad():
            tensor.copy_(_divided(total, size) if op == "avg" else total)

    if work is None:
        finish()
    else:
        work.finish_with(finish, [tensor])
    return work


def _divided(total: Tensor, size: int) -> Tensor:
    """The average; of integers, towards zero, without intermediate numbers of the default type."""
    fractional = total.is_floating_point() or total.is_complex()
    return torch.div(total, size, rounding_mode=None if fractional else "trunc")


def _gathered_counts(mine: Tensor, size: int, options: Any, all_gather: _AllGather) -> list[int]:
    """Every rank's number of values; raises unless all ranks' tensors have one shape."""
    dimensions = torch.tensor([mine._nnz(), mine.sparse_dim(), *mine.shape], dtype=torch.int64, device="cpu")
    gathering = AllgatherOptions()
    gathering.timeout, gathering.asyncOp = options.timeout, False
    everybody = [torch.empty_like(dimensions) for _ in range(size)]
    all_gather([everybody], [dimensions], gathering)
    for rank, theirs in enumerate(everybody):
        if not torch.equal(theirs[1:], dimensions[1:]):
            raise ArgumentError(
                f"the sparse tensor has shape {list(mine.shape)} with {mine.sparse_dim()} sparse dimensions: expected "
                f"{theirs[2:].tolist()} with {theirs[1]}, as on rank {rank}"
            )
    return [int(theirs[0]) for theirs in everybody]
