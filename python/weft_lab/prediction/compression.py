"""Traffic of compressed buckets, by compression: the formulas of `weft.torch.modes`.

Only the bytes are counted, not the processor time of compression.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from weft_lab.prediction.cluster import Exchange
from weft_lab.prediction.profile import ProfiledParameter

__all__ = ["COMPRESSIONS", "Compression"]

Bucket = Sequence[ProfiledParameter]

_FLOAT = "float32"
_INDEX_BYTES, _COUNT_BYTES, _SCALE_BYTES, _NORM_BYTES = 4, 8, 4, 4
_POWER_SGD_RANK = 4
_POWER_SGD_RATE_MIN = 2.0
_DEEP_RATIO = 0.001
_COARSE_RATIO, _COARSE_CHUNK = 0.1, 32_768


@dataclasses.dataclass(frozen=True)
class Compression:
    """A method of compression."""

    about: str
    exchanges: Callable[[Bucket, int], list[Exchange]]
    """The exchanges of a bucket between this many ranks, one after the other."""


def _wire(name: str) -> Callable[[Bucket, int], list[Exchange]]:
    def exchanges(bucket: Bucket, ranks: int) -> list[Exchange]:  # noqa: ARG001
        floats = all(parameter.dtype == _FLOAT for parameter in bucket)
        return [Exchange("all-reduce", _nbytes(bucket), name if floats else "full")]

    return exchanges


def _power_sgd(bucket: Bucket, ranks: int) -> list[Exchange]:  # noqa: ARG001
    """The exact rest and all P together, then all Q: rank (n + m) elements of n x m."""
    exact = p = q = 0
    for parameter in bucket:
        rows = parameter.shape[0] if parameter.shape else 1
        columns = parameter.elements // max(rows, 1)
        rank = min(rows, columns, _POWER_SGD_RANK)
        if len(parameter.shape) > 1 and (rows + columns) * rank * _POWER_SGD_RATE_MIN < parameter.elements:
            p += rows * rank * parameter.itemsize
            q += columns * rank * parameter.itemsize
        else:
            exact += parameter.nbytes
    return _that_send([Exchange("all-reduce", nbytes) for nbytes in (exact, p, q)])


def _one_bit(bucket: Bucket, ranks: int) -> list[Exchange]:
    """A bit per element and a scale per block, twice."""
    block = -(-sum(parameter.elements for parameter in bucket) // (8 * ranks)) + _SCALE_BYTES
    return [Exchange("all-to-all", ranks * block), Exchange("all-gather", ranks * block)]


def _deep(bucket: Bucket, ranks: int) -> list[Exchange]:
    """The largest elements with their indices, after their counts; vectors whole."""
    sent = 0
    for parameter in bucket:
        chosen = parameter.elements if len(parameter.shape) < 2 else max(round(parameter.elements * _DEEP_RATIO), 1)
        sent += chosen * (parameter.itemsize + _INDEX_BYTES)
    return [Exchange("all-gather", ranks * _COUNT_BYTES), Exchange("all-gather", ranks * sent)]


def _coarse(bucket: Bucket, ranks: int) -> list[Exchange]:  # noqa: ARG001
    """Whole chunks, and a norm for each."""
    elements = sum(parameter.elements for parameter in bucket)
    chunks = max(-(-elements // _COARSE_CHUNK), 1)
    chosen = max(round(chunks * _COARSE_RATIO), 1)
    sent = min(chosen * _COARSE_CHUNK, elements) * bucket[0].itemsize
    return [Exchange("all-reduce", sent), Exchange("all-reduce", chunks * _NORM_BYTES)]


COMPRESSIONS = {
    "bf16": Compression("bf16 between hosts (Wire)", _wire("bf16")),
    "fp8": Compression("8-bit floats between hosts (Wire, fp8_e4m3)", _wire("fp8_e4m3")),
    "power-sgd": Compression(f"PowerSGD of rank {_POWER_SGD_RANK}", _power_sgd),
    "one-bit": Compression("signs and scales (OneBit)", _one_bit),
    "coarse": Compression(f"{_COARSE_RATIO:.0%} of chunks (CoarseGrainedSparse)", _coarse),
    "deep": Compression(f"{_DEEP_RATIO:.1%} of elements (DeepGradientCompression)", _deep),
}
"""Compressions by name."""


def _nbytes(bucket: Bucket) -> int:
    return sum(parameter.nbytes for parameter in bucket)


def _that_send(exchanges: Sequence[Exchange]) -> list[Exchange]:
    return [exchange for exchange in exchanges if exchange.nbytes]
