"""The context in which optimizers and modes run, whatever the forward around them runs in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

__all__ = ["outside_of_everything"]


@contextlib.contextmanager
def outside_of_everything() -> Iterator[None]:
    """What a forward or backward runs in, such as autocast and inference mode, is not for them."""
    if torch.is_inference_mode_enabled() or torch.is_autocast_enabled("cpu"):
        with torch.inference_mode(False), torch.no_grad(), torch.autocast("cpu", enabled=False):
            yield
    else:  # which is so nearly always, and costs a third
        with torch.no_grad():
            yield
