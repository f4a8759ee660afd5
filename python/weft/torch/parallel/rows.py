"""Exchange of embeddings' gradients by rows: those that some rank's inputs have touched.

An embedding's gradient is zero except for the rows of the inputs, and forward needs its parameter
first, so its average is the hardest to hide. Ranks exchange their numbers of rows that are not
zero; then all know whether rows are less traffic than an average of the whole matrix, and do the
same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from weft.datatypes.ops import Op
from weft.errors import ArgumentError
from weft.torch.modes import Bucket as Gradients
from weft.torch.modes import Communication as ModeCommunication
from weft.torch.modes import Mode, Stages
from weft.torch.modes.sparse import INDEX_BYTES, add_sparse, check_indices
from weft.torch.parallel.averaging import Averaging
from weft.torch.parallel.buckets import Bucket, Handle
from weft.torch.parallel.plan import BucketPlan

__all__ = ["EmbeddingPolicy", "RowAveraging", "Rows", "bytes_of_rows", "check_rows", "exchanged_by_rows"]

EmbeddingPolicy = Literal["automatic", "rows", "dense"]

_AUTOMATIC_BYTES_MIN = 1 << 20
"""For smaller gradients, inspecting the rows and a further message do not pay."""


class Rows(Mode):
    """The exact average of a matrix, of which ranks send the rows that are not zero.

    `sum(g / P)` in the order of the ranks, so all have the same bits. A row takes 4 bytes more than
    its elements. An all-gather brings every rank all ranks' rows, an all-reduce moves twice the
    matrix (each less a P-th): where that is not more, the matrix is averaged as a whole.
    """

    def average(self, bucket: Gradients, communication: ModeCommunication) -> Stages:
        """See `Mode.average`. The bucket has one parameter, a matrix."""
        self._begin(bucket)
        (matrix,) = bucket.gradients()
        check_indices(matrix.shape[0], 31)
        # The sum of magnitudes is 0 for zeros only, and fast; squares of small numbers are 0 too.
        index = torch.linalg.vector_norm(matrix, 1, dim=1).nonzero().view(-1)
        counts = torch.empty(communication.size, dtype=torch.int64, device="cpu")
        number = torch.tensor([index.numel()], dtype=torch.int64, device="cpu")
        yield communication.all_gather(counts.split(1), number)  # type: ignore[no-untyped-call]
        row_bytes = matrix.shape[1] * matrix.element_size() + INDEX_BYTES
        total = int(counts.sum())
        if total * row_bytes >= 2 * matrix.nbytes:
            yield communication.all_reduce(bucket.buffer.div_(communication.size))
        elif total > 0:
            own = matrix[index].div_(communication.size)
            matrix.index_fill_(0, index, 0)
            yield from add_sparse(index, own, counts, matrix, communication)


class RowAveraging:
    """Averages buckets exactly, except those that the plan exchanges by rows."""

    def __init__(self, others: Averaging, rows: Averaging, size: int) -> None:
        """`rows` averages in the mode `Rows`; `size` is the number of ranks."""
        self._others = others
        self._rows = rows
        self._size = size

    def __call__(self, bucket: Bucket) -> Handle:
        """See `Averaging`."""
        averaging = self._rows if bucket.planned.rows and self._size > 1 else self._others
        return averaging(bucket)

    def operation(self, bucket: Bucket) -> tuple[Op, int]:
        """See `Averaging`. Exchanges of rows are timed."""
        return self._others.operation(bucket)

    def finish(self) -> None:
        """See `Averaging`."""
        self._others.finish()


def exchanged_by_rows(
    module: nn.Module, trained: Iterable[tuple[str, Tensor]], policy: EmbeddingPolicy, mode: Mode | None
) -> frozenset[int]:
    """The places of the trained parameters that are exchanged by rows.

    Those that only an `Embedding` or `EmbeddingBag` has: a weight that an output layer shares has a
    gradient in every row. With the policy `automatic` only large ones, and none in a mode.

    Raises:
        weft.ArgumentError: There is no such policy, or it is `rows`, with a mode.
    """
    if policy not in get_args(EmbeddingPolicy):
        raise ArgumentError(f"embeddings={policy!r}: expected one of {', '.join(get_args(EmbeddingPolicy))}")
    if mode is not None and policy == "rows":
        raise ArgumentError(
            f"embeddings='rows' with {mode!r}: expected 'automatic' or 'dense', as the mode averages all"
        )
    if mode is not None or policy == "dense":
        return frozenset()
    modules = list(module.modules())
    holders = Counter(id(parameter) for one in modules for parameter in dict.values(one._parameters))
    weights = {
        id(one._parameters.get("weight"))
        for one in modules
        if isinstance(one, (nn.Embedding, nn.EmbeddingBag)) and not one.sparse
    }
    nbytes_min = 1 if policy == "rows" else _AUTOMATIC_BYTES_MIN
    return frozenset(
        place
        for place, (_, parameter) in enumerate(trained)
        if id(parameter) in weights and holders[id(parameter)] == 1 and parameter.nbytes >= nbytes_min
    )


def bytes_of_rows(plan: BucketPlan, buckets: Iterable[Bucket], size: int) -> dict[int, float]:
    """Bytes of an all-reduce with the traffic of the last exchanges, by place of parameter.

    Among P ranks an all-gather moves P - 1 times the bytes that a rank sends, an all-reduce
    2 (P - 1) / P times its bytes.
    """
    rows = (bucket for bucket in buckets if bucket.planned.rows and bucket.sent_bytes)
    return {
        bucket.planned.parameters[0]: min(bucket.sent_bytes * size / 2, plan.nbytes(bucket.planned)) for bucket in rows
    }


def check_rows(plan: BucketPlan, trained: Sequence[tuple[str, Tensor]]) -> None:
    """Raises `weft.ArgumentError` unless a plan's parameters by rows are matrices."""
    for bucket in plan.buckets:
        for name, parameter in (trained[index] for index in bucket.parameters if bucket.rows):
            if parameter.dim() != 2:
                raise ArgumentError(
                    f"the plan exchanges {name} by rows, whose shape is {list(parameter.shape)}: expected a matrix"
                )
