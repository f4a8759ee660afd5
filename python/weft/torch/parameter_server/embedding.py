"""An embedding whose table is on the servers: a worker holds only the rows that it uses."""

from __future__ import annotations

import hashlib
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from weft.errors import ArgumentError, ConfigError
from weft.torch.parameter_server.plan import Table

__all__ = ["ServedEmbedding"]


class RowSource(Protocol):
    """The source of rows: a `Worker`."""

    def pull_rows(self, table: str, rows: Tensor) -> Tensor:
        """Rows of a table: float32 (rows, width)."""


class ServedEmbedding(nn.Module):
    """An embedding of any size, used as `nn.Embedding`.

    Forward pulls the rows that its inputs name, and `Worker.step` pushes their gradients. The table
    has no parameter here, and is in no `state_dict`; servers make the first values.

    Examples:
        >>> table = torch.nn.Sequential(ServedEmbedding(10_000, 64))  # a model with a table
        >>> worker = Worker(table, ServerOptimizer("sgd", lr=0.1), [server.address])
        >>> rows = worker(torch.tensor([1, 5]))  # of shape (2, 64)
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, *, deviation: float = 1.0, seed: int = 0) -> None:
        """Describes the table; all workers describe the same.

        Args:
            num_embeddings: The number of rows.
            embedding_dim: The length of a row.
            deviation: The standard deviation of the normal distribution of the first values.
            seed: The seed of the first values.

        Raises:
            weft.ArgumentError: A size is not at least 1, or the deviation is negative.
        """
        super().__init__()
        if num_embeddings < 1 or embedding_dim < 1 or not deviation >= 0:
            raise ArgumentError(
                f"ServedEmbedding({num_embeddings}, {embedding_dim}, deviation={deviation}): expected sizes of at "
                "least 1, and a deviation of at least 0"
            )
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self._deviation, self._seed = deviation, seed
        self._worker: list[RowSource] = []  # in a list, since a worker holds the model
        self._name = ""
        self._used: list[tuple[Tensor, Tensor]] = []
        self.rows_held_max = 0
        """The most rows that this process has held at a time."""

    def forward(self, numbers: Tensor) -> Tensor:
        """Returns the rows of these numbers (int64, any shape): the input's shape, then the width.

        Raises:
            weft.ArgumentError: A number is not that of a row.
            weft.ConfigError: The model has no `Worker`.
            ServerLost: A server cannot be reached.
        """
        if not self._worker:
            raise ConfigError("a ServedEmbedding needs a Worker around the model: its rows are on the servers")
        wanted, places = torch.unique(numbers, return_inverse=True)
        if wanted.numel() and not 0 <= int(wanted[0]) <= int(wanted[-1]) < self.num_embeddings:
            raise ArgumentError(
                f"rows {int(wanted[0])} to {int(wanted[-1])}: expected numbers from 0 to {self.num_embeddings - 1}"
            )
        rows = self._worker[0].pull_rows(self._name, wanted.long())
        if torch.is_grad_enabled() and self.training:
            rows.requires_grad_()
            self._used.append((wanted.long(), rows))
        held = wanted.numel() + sum(used.numel() for used, other in self._used if other is not rows)
        self.rows_held_max = max(self.rows_held_max, held)
        return F.embedding(places, rows)

    def extra_repr(self) -> str:
        """As of `nn.Embedding`."""
        return f"{self.num_embeddings}, {self.embedding_dim}"

    def table(self, name: str) -> Table:
        """The table for plans; the name of the module makes its seed unique."""
        own = int.from_bytes(hashlib.sha256(f"{name} {self._seed}".encode()).digest()[:4])
        return Table(name, self.num_embeddings, self.embedding_dim, float(self._deviation), own)

    def bind(self, worker: RowSource, name: str) -> None:
        """Sets the worker that pulls and pushes its rows."""
        self._worker[:] = [worker]
        self._name = name

    def take_gradients(self) -> tuple[Tensor, Tensor] | None:
        """The rows used since the last step, each once, and their gradients; None without any."""
        used = [(numbers, rows.grad) for numbers, rows in self._used if rows.grad is not None]
        self._used.clear()
        if not used:
            return None
        if len(used) == 1:
            return used[0][0], used[0][1]
        numbers, places = torch.unique(torch.cat([each for each, _ in used]), return_inverse=True)
        total = torch.zeros(numbers.numel(), self.embedding_dim, dtype=torch.float32, device="cpu")
        total.index_add_(0, places, torch.cat([gradient for _, gradient in used]))
        return numbers, total
