"""Formats of messages: 16-bit values, and pushes of the largest elements only."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from weft.errors import ArgumentError
from weft.torch.modes.deep_gradient_compression import largest
from weft.torch.modes.state import drop_not_finite

__all__ = ["WIRES", "Largest"]

WIRES = {"full": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
"""By name, the type of pushed and pulled values; servers keep and add `float32`."""
_SAMPLE = 0.01


class Largest:
    """Pushes the largest elements of each bucket; the worker keeps the rest for its next push.

    Pulls are complete. The residual belongs to the worker; its rest is not pushed when the worker
    ends.
    """

    def __init__(self, ratio: float) -> None:
        """Sets the fraction of elements that is pushed.

        Args:
            ratio: A number above 0 and below 1.

        Raises:
            weft.ArgumentError: It is not above 0 and below 1.

        Examples:
            >>> adam, few = ServerOptimizer("adam", lr=1e-3), Largest(0.01)  # 1% of the elements
            >>> worker = Worker(net, adam, [server.address], compression=few)
        """
        if not 0 < ratio < 1:
            raise ArgumentError(f"ratio={ratio!r}: expected a number above 0 and below 1")
        self._ratio = ratio
        self._residuals: dict[Any, Tensor] = {}

    def __repr__(self) -> str:
        return f"Largest({self._ratio:g})"

    def compress(self, key: Any, gradient: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Places (int32) and values of a vector's largest elements, after adding its residual.

        The rounding error of `dtype` stays in the residual as well.
        """
        residual = self._residuals.setdefault(key, torch.zeros_like(gradient))
        residual += gradient
        places = largest(residual.abs(), self._ratio, _SAMPLE)
        values = residual[places].to(dtype)
        residual[places] -= values.float()
        drop_not_finite(residual)
        return places.to(torch.int32), values
