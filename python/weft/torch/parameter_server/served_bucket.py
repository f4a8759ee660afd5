"""A worker's side of a bucket: memory of its parameters and gradients, and pending requests."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import torch
from torch import Tensor, nn

from weft.torch.parameter_server.plan import Bucket

__all__ = ["ServedBucket", "Slot"]


class Slot:
    """A parameter in its bucket."""

    def __init__(self, bucket: ServedBucket, name: str, parameter: nn.Parameter, start: int) -> None:
        self.bucket, self.name, self.parameter = bucket, name, parameter
        self._range = slice(start, start + parameter.numel())
        self.is_ready = False
        """Whether its gradient is in the bucket."""
        values = bucket.values[self._range].view(parameter.shape)
        values.copy_(parameter.detach())
        parameter.data = values

    @property
    def index(self) -> int:
        """Identifies the parameter."""
        return id(self.parameter)

    def take_gradient(self) -> None:
        """Moves the gradient into the bucket, once the bucket's old one is not needed any more."""
        self.bucket.wait()
        self.bucket.wait_for_pushes()
        assert self.parameter.grad is not None  # autograd has just computed it
        self.bucket.gradient[self._range].copy_(self.parameter.grad.view(-1))
        self.parameter.grad = None
        self.is_ready = True

    def clear(self) -> None:
        """Sets a gradient that was not computed to zero."""
        self.bucket.gradient[self._range].zero_()


class ServedBucket:
    """Neighbouring parameters that are sent together."""

    def __init__(self, number: int, bucket: Bucket, parameters: Mapping[str, nn.Parameter]) -> None:
        self.number = number
        self.pieces = bucket.pieces
        self.values = torch.empty(bucket.elements, dtype=torch.float32, device="cpu")
        self.gradient = torch.zeros(bucket.elements, dtype=torch.float32, device="cpu")
        self.slots: list[Slot] = []
        start = 0
        for name, _ in bucket.parameters:
            self.slots.append(Slot(self, name, parameters[name], start))
            start += parameters[name].numel()
        self.is_pushed = False
        """Whether backward has pushed the gradient of the present step."""
        self.versions: dict[int, int] = {}
        """By the place of a piece, the version of its values here."""
        self.pulls: dict[int, Future[None]] = {}
        self._comes_apart = False
        self.pushes: dict[int, Future[Any]] = {}
        self._number = 0

    @property
    def is_ready(self) -> bool:
        """Whether all gradients have arrived."""
        return all(slot.is_ready for slot in self.slots)

    def finish_gradient(self) -> bool:
        """Completes the gradient for its push; returns False if it has none."""
        any_ready = any(slot.is_ready or slot.parameter.grad is not None for slot in self.slots)
        for slot in self.slots:
            if slot.is_ready:
                slot.is_ready = False
            elif slot.parameter.grad is not None:  # of a backward within no_sync
                slot.take_gradient()
                slot.is_ready = False
            elif any_ready:
                self.wait_for_pushes()
                slot.clear()
        return any_ready

    def begin_push(self) -> int:
        """The number of the next push."""
        self._number += 1
        return self._number

    def wait_for_pushes(self) -> None:
        """Waits until the last pushes have been acknowledged."""
        while self.pushes:
            _, future = self.pushes.popitem()
            future.result()

    def begin_pull(self, *, apart: bool) -> Tensor:
        """The memory for the next values; a separate one if the values are still in use."""
        self._comes_apart = apart
        return self.gradient if apart else self.values

    def wait(self) -> None:
        """Waits for the parameters that an ended step has requested."""
        if self.is_pushed:
            return
        while self.pulls:
            place = next(iter(self.pulls))
            self.pulls[place].result()
            self.pulls.pop(place, None)
        if self._comes_apart:
            self.values.copy_(self.gradient)
            self._comes_apart = False
        for future in self.pushes.values():
            if future.done():
                future.result()
