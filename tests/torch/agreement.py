"""Comparison of parameters between ranks."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


def check_same_on_all_ranks(parameters: dict[str, Tensor], size: int) -> None:
    """Asserts that every rank has the same bits. All ranks call it."""
    for key, value in parameters.items():
        copies = [torch.empty_like(value) for _ in range(size)]
        dist.all_gather(copies, value.contiguous())
        assert all(torch.equal(value, copy) for copy in copies), f"{key} differs between ranks"
