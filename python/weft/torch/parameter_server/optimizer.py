"""The servers' optimizer: one of torch's by name, on vectors and on the touched rows of tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from weft.errors import ArgumentError
from weft.torch.parameter_server import parsing

__all__ = ["OPTIMIZERS", "RowOptimizer", "ServerOptimizer", "VectorOptimizer"]

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
}
"""Optimizers that update every element separately, so that a piece can be updated alone."""


class ServerOptimizer:
    """The servers' optimizer, such as `ServerOptimizer("adamw", lr=1e-3)`."""

    def __init__(self, name: str, **options: Any) -> None:
        """Checks name and options.

        Args:
            name: One of `OPTIMIZERS`.
            options: Those of torch's optimizer: numbers, truth values, and pairs such as `betas`.

        Raises:
            weft.ArgumentError: There is no such optimizer, or it does not take these options.

        Examples:
            >>> optimizer = ServerOptimizer("adamw", lr=1e-3, betas=(0.9, 0.95))
            >>> worker = Worker(net, optimizer, [server.address])
        """
        if name not in OPTIMIZERS:
            raise ArgumentError(f"optimizer {name!r}: expected one of {', '.join(OPTIMIZERS)}")
        self.name = name
        self.options: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in options.items()
        }
        for key, value in self.options.items():
            for one in value if isinstance(value, tuple) else (value,):
                if type(one) not in (bool, int, float):
                    raise ArgumentError(
                        f"optimizer {name!r}: {key}={value!r}: expected a number, a truth value or a pair"
                    )
                parsing.number(float(one) if isinstance(one, bool) else one, key)
        try:
            trial = VectorOptimizer(self, torch.zeros(1, dtype=torch.float32, device="cpu"))
            trial.step(torch.ones(1, dtype=torch.float32, device="cpu"))
            numbers, tensors = trial.state()
            self._state_names = set(numbers), set(tensors)
        except Exception as error:  # torch raises various errors, some only in a step
            raise ArgumentError(f"optimizer {name!r}: {error}") from None

    def check_rows(self) -> None:
        """Raises unless it can update tables.

        Raises:
            weft.ArgumentError: It cannot.
        """
        if self.options.get("dampening"):
            raise ArgumentError("dampening of sgd is not allowed for tables: expected 0")

    def check_state(self, numbers: Collection[str], tensors: Collection[str]) -> None:
        """Raises unless a state has these names: those after a step, or none before the first.

        Raises:
            weft.ArgumentError: It has others.
        """
        if (numbers or tensors) and (set(numbers), set(tensors)) != self._state_names:
            raise ArgumentError(f"a state of {self.name} with {parsing.short([*numbers, *tensors])}")

    def make(self, values: Tensor) -> torch.optim.Optimizer:
        """Torch's optimizer of one parameter, whose values stay in place."""
        return OPTIMIZERS[self.name]([nn.Parameter(values)], **self.options)

    def to_value(self) -> dict[str, Any]:
        """The JSON form."""
        return {"name": self.name, "options": self.options}

    @staticmethod
    def from_value(value: Any) -> ServerOptimizer:
        """Parses the result of `to_value`.

        Raises:
            weft.ArgumentError: It is not an optimizer.
        """
        fields = parsing.mapping(value, "optimizer", ("name", "options"))
        name, options = parsing.text(fields["name"], "optimizer"), parsing.mapping(fields["options"], "options")
        if "name" in options or "self" in options:
            raise ArgumentError(f"optimizer {name!r}: options {parsing.short(options)}")
        return ServerOptimizer(name, **options)


@dataclasses.dataclass
class _State:
    """An optimizer's state, by the names of torch: tensors like the values, and numbers."""

    tensors: dict[str, Tensor]
    numbers: dict[str, float]


class _Stepping:
    """The base of both kinds: a step with an optional learning rate."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._rate = float(optimizer.param_groups[0]["lr"])

    def _step(self, learning_rate: float | None, factor: float) -> None:
        rate = self._rate if learning_rate is None else learning_rate
        self._optimizer.param_groups[0]["lr"] = rate * factor
        self._optimizer.step()


class VectorOptimizer(_Stepping):
    """Updates of one vector."""

    def __init__(self, how: ServerOptimizer, values: Tensor) -> None:
        super().__init__(how.make(values))
        self._parameter = self._optimizer.param_groups[0]["params"][0]

    def step(self, gradient: Tensor, learning_rate: float | None = None, factor: float = 1.0) -> None:
        """Updates the values in place.

        Args:
            gradient: A vector of the same length.
            learning_rate: Replaces the optimizer's own.
            factor: A factor of the rate.
        """
        self._parameter.grad = gradient
        self._step(learning_rate, factor)
        self._parameter.grad = None

    def state(self) -> tuple[dict[str, float], dict[str, Tensor]]:
        """Numbers and tensors, by name."""
        found = _split(self._optimizer.state[self._parameter])
        return found.numbers, found.tensors

    def restore(self, numbers: Mapping[str, float], tensors: Mapping[str, Tensor]) -> None:
        """Continues from a result of `state`."""
        if numbers or tensors:
            self._optimizer.state[self._parameter] = _joined(numbers, tensors)


class RowOptimizer(_Stepping):
    """Updates of the touched rows of a table; the state of other rows is unchanged.

    The touched rows, and their rows of the optimizer's state, are gathered into a small parameter,
    which torch's optimizer updates; so each optimizer is as lazy as `torch.optim.SparseAdam`.
    Numbers such as Adam's `step` count for the table as a whole.
    """

    def __init__(self, how: ServerOptimizer, values: Tensor) -> None:
        how.check_rows()
        super().__init__(how.make(torch.zeros(0, values.shape[1], dtype=torch.float32, device="cpu")))
        self._how = how
        self._values = values
        self._state: _State | None = None

    def step(self, rows: Tensor, gradient: Tensor, learning_rate: float | None = None, factor: float = 1.0) -> None:
        """Updates some rows in place.

        Args:
            rows: Their numbers, each once: int64.
            gradient: A row for each.
            learning_rate: Replaces the optimizer's own.
            factor: A factor of the rate.
        """
        if not rows.numel():
            return
        self._optimizer = self._how.make(self._values[rows])
        parameter = self._optimizer.param_groups[0]["params"][0]
        first = _split(self._optimizer.state[parameter])
        if self._state is not None:
            gathered = {name: tensor[rows] for name, tensor in self._state.tensors.items()}
            self._optimizer.state[parameter] = _joined(self._state.numbers, gathered)
        parameter.grad = gradient
        self._step(learning_rate, factor)
        after = _split(self._optimizer.state[parameter])
        if self._state is None:
            self._state = _State({name: self._whole(name, first, after) for name in after.tensors}, {})
        self._state.numbers = after.numbers
        for name, tensor in after.tensors.items():
            self._state.tensors[name][rows] = tensor
        self._values[rows] = parameter.detach()

    def state(self) -> tuple[dict[str, float], dict[str, Tensor]]:
        """Numbers and tensors, by name."""
        return ({}, {}) if self._state is None else (self._state.numbers, self._state.tensors)

    def restore(self, numbers: Mapping[str, float], tensors: Mapping[str, Tensor]) -> None:
        """Continues from a result of `state`."""
        if numbers or tensors:
            shaped = {name: tensor.view_as(self._values) for name, tensor in tensors.items()}
            self._state = _State(shaped, dict(numbers))

    def _whole(self, name: str, first: _State, after: _State) -> Tensor:
        """A table of the state in which untouched rows have zeros, or Adagrad's initial value."""
        begin = first.tensors.get(name)
        whole = torch.zeros(self._values.shape, dtype=after.tensors[name].dtype, device="cpu")
        return whole if begin is None else whole.fill_(float(self._how.options.get("initial_accumulator_value", 0.0)))


def _split(state: Mapping[str, Any]) -> _State:
    """Torch keeps a count of steps as a tensor of no dimension."""
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor) and value.dim()}
    numbers = {name: float(value) for name, value in state.items() if value is not None and name not in tensors}
    return _State(tensors, numbers)


def _joined(numbers: Mapping[str, float], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    scalars = {name: torch.tensor(number, dtype=torch.float32, device="cpu") for name, number in numbers.items()}
    return {**scalars, **tensors}
