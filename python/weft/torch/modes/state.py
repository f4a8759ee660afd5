"""State of modes: vectors beside the gradients, kept by parameter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from weft.errors import ArgumentError

if TYPE_CHECKING:
    from weft.torch.modes.bucket import Bucket

__all__ = ["PerParameter", "drop_not_finite"]


class PerParameter:
    """A vector as long as each bucket, zero at first.

    The parts belong to parameters and follow them when these move into other buckets: DDP lays its
    buckets out again after the first step, and a checkpoint is loaded before that.
    """

    def __init__(self) -> None:
        self._parts: dict[str, Tensor] = {}
        self._vectors: dict[tuple[str, ...], Tensor] = {}

    def of(self, bucket: Bucket) -> Tensor:
        """The vector for this bucket, to be changed in place."""
        vector = self._vectors.get(bucket.names)
        if vector is None or vector.numel() != bucket.buffer.numel():
            vector = self._lay_out(bucket)
        return vector

    def _lay_out(self, bucket: Bucket) -> Tensor:
        vector = torch.zeros_like(bucket.buffer)
        for name, part in zip(bucket.names, bucket.parts(vector), strict=True):
            kept = self._parts.get(name)
            if kept is not None:
                if kept.numel() != part.numel():
                    raise ArgumentError(
                        f"the state of {name} has {kept.numel()} elements: expected {part.numel()}, as the parameter"
                    )
                part.copy_(kept)
            self._parts[name] = part
        here = set(bucket.names)
        self._vectors = {names: kept for names, kept in self._vectors.items() if here.isdisjoint(names)}
        self._vectors[bucket.names] = vector
        return vector

    def state_dict(self) -> dict[str, Tensor]:
        """Copies of the parts, one-dimensional, by name of parameter."""
        return {name: part.clone() for name, part in self._parts.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Takes copies of such parts."""
        self._vectors = {}
        self._parts = {name: part.clone() for name, part in state.items()}


def drop_not_finite(residual: Tensor) -> None:
    """Sets values that are not finite numbers to 0, in place.

    The average has reported an overflow to all ranks. If it stayed in a residual, all later steps
    would be wrong.
    """
    residual.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
