"""The context in which optimizers and modes run, independent of the forward around them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

__all__ = ["outside_of_everything"]


@contextlib.contextmanager
def outside_of_everything() -> Iterator[None]:
    """Leaves the contexts of a forward or backward, such as autocast and inference mode."""
    if torch.is_inference_mode_enabled() or torch.is_autocast_enabled("cpu"):
        with torch.inference_mode(False), torch.no_grad(), torch.autocast("cpu", enabled=False):
            yield
    else:  # the usual case, in a third of the time
        with torch.no_grad():
            yield
