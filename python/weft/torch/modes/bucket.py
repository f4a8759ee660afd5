"""The bucket of gradients for modes."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from weft.errors import ArgumentError

__all__ = ["Bucket"]


class Bucket:
    """Gradients that are averaged together: one vector with one after the other."""

    def __init__(self, index: int, buffer: Tensor, parameters: Mapping[str, Tensor], *, is_last: bool = True) -> None:
        """Describes gradients to average.

        Args:
            index: The bucket's number in its step, the same on all ranks.
            buffer: The gradients: one-dimensional, floating point.
            parameters: The parameters by name, in the order of their gradients. Names are the same
                on all ranks and in every run: a mode keeps its state by them.
            is_last: Whether no other bucket follows in this step.

        Raises:
            weft.ArgumentError: The parameters and the buffer differ in their number of elements.
        """
        elements = sum(parameter.numel() for parameter in parameters.values())
        if buffer.dim() != 1 or buffer.numel() != elements:
            raise ArgumentError(
                f"bucket {index} has a buffer of shape {list(buffer.shape)}: expected [{elements}], since its "
                f"{len(parameters)} parameters have as many elements"
            )
        self.index = index
        self.buffer = buffer
        self.is_last = is_last
        self.names = tuple(parameters)
        self._parameters = list(parameters.values())

    def parameters(self) -> list[Tensor]:
        """The parameters of these gradients."""
        return self._parameters

    def parts(self, vector: Tensor) -> list[Tensor]:
        """The parts of a vector as long as the buffer: one-dimensional views, by parameter."""
        return list(torch.split(vector, [parameter.numel() for parameter in self._parameters]))

    def gradients(self) -> list[Tensor]:
        """The views of the buffer that have the parameters' shapes."""
        parts = self.parts(self.buffer)
        return [part.view(parameter.shape) for part, parameter in zip(parts, self._parameters, strict=True)]
