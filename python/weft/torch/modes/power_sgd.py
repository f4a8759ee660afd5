"""PowerSGD: matrices of low rank instead of gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.errors import ArgumentError
from weft.torch.modes.bucket import Bucket
from weft.torch.modes.mode import Communication, Mode, Stages
from weft.torch.modes.state import PerParameter, drop_not_finite

__all__ = ["PowerSGD"]

_SEEDS = 1_000_000_000


class PowerSGD(Mode):
    """One step of the power iteration for each matrix, with error feedback (arXiv 1905.13727).

    `M = M + e; P = M Q; all-reduce P; orthogonalise P; Q = M^T P; all-reduce Q; average P Q^T;
    e = M - P Q^T`. Q starts as in the last step (warm start). The formulas, and the first random Q,
    are those of torch's `powerSGD_hook`. A tensor is compressed if that saves enough; the others
    are averaged exactly.

    It sends `rank (n + m)` elements of a matrix of n rows and m columns. Every rank multiplies P
    Q^T
    itself: the results have the same bits if processors and libraries are the same.
    """

    def __init__(self, rank: int = 1, *, start_step: int = 0, min_compression_rate: float = 2.0, seed: int = 0) -> None:
        """Sets the amount of data.

        Args:
            rank: Columns of P and Q.
            start_step: The first step that is compressed; those before are exact.
            min_compression_rate: A tensor is compressed if
                `rank (n + m) min_compression_rate < n m`.
            seed: The seed of the first Q; the same on all ranks.

        Raises:
            weft.ArgumentError: The rank is below 1.
        """
        self._residual = PerParameter()
        super().__init__(residual=self._residual)
        if rank < 1:
            raise ArgumentError(f"rank={rank} is not allowed: expected at least 1")
        self._rank = rank
        self._start_step = start_step
        self._min_compression_rate = min_compression_rate
        self._seed = seed
        self._drawn = 0
        self._seeds = np.random.RandomState(seed)
        self._factors: dict[str, Tensor] = {}
        """The Q of each compressed parameter, m x rank, after the last step."""

    def average(self, bucket: Bucket, communication: Communication) -> Stages:
        """See `Mode.average`."""
        if self._begin(bucket) < self._start_step:
            yield communication.all_reduce(bucket.buffer.div_(communication.size))
            return
        residual = self._residual.of(bucket)
        residual.add_(bucket.buffer)
        bucket.buffer.copy_(residual)
        compressed, others = self._divide(bucket)
        exact = torch.cat([bucket.buffer[:0], *(other.reshape(-1) for other in others)]).div_(communication.size)
        works = [communication.all_reduce(exact)]
        ps, ps_flat = _vectors([(matrix.shape[0], self._rank_of(matrix)) for _, matrix in compressed], exact)
        qs, qs_flat = _vectors([(matrix.shape[1], self._rank_of(matrix)) for _, matrix in compressed], exact)
        self._fill_factors(compressed, qs)
        for (_, matrix), p, q in zip(compressed, ps, qs, strict=True):
            torch.mm(matrix, orthogonalised(q), out=p)
        works.append(communication.all_reduce(ps_flat))
        yield from works
        ps = [orthogonalised(p) for p in ps]
        for (_, matrix), p, q in zip(compressed, ps, qs, strict=True):
            torch.mm(matrix.t(), p, out=q)
        yield communication.all_reduce(qs_flat)
        qs_flat.div_(communication.size)
        for (name, matrix), p, q in zip(compressed, ps, qs, strict=True):
            torch.mm(p, q.t(), out=matrix)
            self._factors[name] = q
        for other, average in zip(others, torch.split(exact, [other.numel() for other in others]), strict=True):
            other.copy_(average.view(other.shape))
        self._keep_residual(bucket, {name for name, _ in compressed})

    def state_dict(self) -> dict[str, Any]:
        """See `Mode.state_dict`."""
        factors = {name: factor.clone() for name, factor in self._factors.items()}
        return {**super().state_dict(), "factors": factors, "drawn": self._drawn}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `Mode.load_state_dict`."""
        super().load_state_dict(state)
        self._factors = {name: factor.clone() for name, factor in state["factors"].items()}
        self._seeds, self._drawn = np.random.RandomState(self._seed), 0
        while self._drawn < state["drawn"]:
            self._draw_seed()

    def _divide(self, bucket: Bucket) -> tuple[list[tuple[str, Tensor]], list[Tensor]]:
        """The matrices that are compressed, by name of parameter, and the other tensors."""
        compressed, others = [], []
        for name, gradient in zip(bucket.names, bucket.gradients(), strict=True):
            matrix = gradient.view(gradient.shape[0], -1) if gradient.dim() > 1 and gradient.numel() > 0 else None
            if matrix is not None and self._is_worth(matrix):
                compressed.append((name, matrix))
            else:
                others.append(gradient)
        return compressed, others

    def _rank_of(self, matrix: Tensor) -> int:
        rows, columns = matrix.shape
        return min(rows, columns, self._rank)

    def _is_worth(self, matrix: Tensor) -> bool:
        sent = (matrix.shape[0] + matrix.shape[1]) * self._rank_of(matrix)
        return sent * self._min_compression_rate < matrix.numel()

    def _fill_factors(self, compressed: list[tuple[str, Tensor]], qs: list[Tensor]) -> None:
        """Sets Q to that of the last step; to random values for parameters without one."""
        generator = None
        for (name, _), q in zip(compressed, qs, strict=True):
            known = self._factors.get(name)
            if known is not None:
                q.copy_(known)
                continue
            generator = generator or torch.Generator().manual_seed(self._draw_seed())
            q.copy_(torch.randn(q.shape, dtype=q.dtype, device="cpu", generator=generator))

    def _draw_seed(self) -> int:
        self._drawn += 1
        return self._seeds.randint(_SEEDS)

    def _keep_residual(self, bucket: Bucket, compressed: set[str]) -> None:
        residual = self._residual.of(bucket)
        parts = zip(bucket.names, bucket.parts(residual), bucket.parts(bucket.buffer), strict=True)
        for name, kept, average in parts:
            if name in compressed:
                kept.sub_(average)
            else:
                kept.zero_()
        if not bucket.buffer.isfinite().all():
            drop_not_finite(residual)
            for name in compressed:
                self._factors.pop(name)  # all ranks have the same, and draw the same new one


def orthogonalised(matrix: Tensor) -> Tensor:
    """An orthonormal basis of the columns; columns of zeros stay zeros up to rank 2.

    As torch does: Gram-Schmidt up to rank 2, which is faster there, and for 16-bit elements.
    """
    if matrix.shape[1] > 2 and matrix.dtype not in (torch.float16, torch.bfloat16):
        basis: Tensor = torch.linalg.qr(matrix).Q
        return basis
    matrix = matrix.clone()
    for i in range(matrix.shape[1]):
        column = matrix[:, i : i + 1]
        norm = torch.linalg.vector_norm(column)
        column.div_(norm.where(norm != 0, 1.0))
        rest = matrix[:, i + 1 :]
        rest.sub_((column * rest).sum(dim=0, keepdim=True) * column)
    return matrix


def _vectors(shapes: list[tuple[int, int]], like: Tensor) -> tuple[list[Tensor], Tensor]:
    """Matrices of these shapes, one after the other in one vector, and the vector."""
    sizes = [rows * columns for rows, columns in shapes]
    flat = like.new_empty(sum(sizes))
    return [part.view(shape) for part, shape in zip(torch.split(flat, sizes), shapes, strict=True)], flat
