"""Operations on many tensors by one call.

torch 2.11 and newer: there are no public functions for it.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["copy_all"]


@torch.no_grad()
def copy_all(targets: list[Tensor], sources: list[Tensor]) -> None:
    """Copies each source into the target at its place, also if some require gradients."""
    torch._foreach_copy_(targets, sources)
