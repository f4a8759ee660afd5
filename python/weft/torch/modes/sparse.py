"""Exchange of sparse vectors: every rank's indices and values, to all ranks."""

from __future__ import annotations

from collections.abc import Generator

import torch
from torch import Tensor

from weft.errors import ArgumentError
from weft.torch.modes.mode import Communication, Work

__all__ = ["INDEX_BYTES", "add_sparse", "average_sparse", "check_indices"]

INDEX_BYTES = 4


def check_indices(elements: int, bits: int) -> None:
    """Checks that a bucket is small enough for its indices.

    Raises:
        weft.ArgumentError: It is not.
    """
    if elements > 1 << bits:
        raise ArgumentError(
            f"a bucket of {elements} elements is too large for indices of {bits} bits: expected at most "
            f"{1 << bits} (make the buckets smaller: bucket_cap_mb of DDP, fusion of weft.torch.DataParallel)"
        )


def average_sparse(
    index: Tensor, values: Tensor, average: Tensor, communication: Communication
) -> Generator[Work, None, None]:
    """Writes the average of all ranks' sparse vectors to `average`.

    Two stages: the counts, of 8 bytes each; then the values, and indices of 4 bytes.

    Args:
        index: The places of this rank's values, each once: int64.
        values: As many values, of the type of `average`.
        average: The vector to write.
        communication: The ranks.

    Raises:
        weft.ArgumentError: The vector has more than 2^31 elements.
    """
    check_indices(average.numel(), 31)
    counts = torch.empty(communication.size, dtype=torch.int64, device="cpu")
    own = torch.tensor([index.numel()], dtype=torch.int64, device="cpu")
    yield communication.all_gather(counts.split(1), own)  # type: ignore[no-untyped-call]
    average.zero_()
    yield from add_sparse(index, values, counts, average, communication)
    average.div_(communication.size)


def add_sparse(
    index: Tensor, values: Tensor, counts: Tensor, total: Tensor, communication: Communication
) -> Generator[Work, None, None]:
    """Adds all ranks' sparse values to `total`, in the order of the ranks.

    Args:
        index: The places of this rank's values along the first dimension, each once: int64.
        values: As many elements of `total`, or rows of it.
        counts: How many values each rank has: int64.
        total: The tensor to add to, of the type of `values`.
        communication: The ranks.
    """
    message = torch.cat([values.view(-1).view(torch.uint8), index.to(torch.int32).view(torch.uint8)])
    width = total[:1].nbytes
    lengths = [int(count) * (width + INDEX_BYTES) for count in counts]
    messages = [torch.empty(length, dtype=torch.uint8, device="cpu") for length in lengths]
    yield communication.all_gather(messages, message)
    for count, theirs in zip(counts.tolist(), messages, strict=True):
        split = count * width
        place = theirs[split:].clone().view(torch.int32)
        total.index_add_(0, place, theirs[:split].view(values.dtype).view(count, *total.shape[1:]))
