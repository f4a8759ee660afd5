"""torch's element types, reduction operations and timeouts, in weft's words."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from weft.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["check_reducible", "computed", "is_reducible", "moved", "real", "reduction", "seconds"]

_COMPUTED: Mapping[torch.dtype, str] = {
    torch.float64: "float64",
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.int64: "int64",
    torch.int32: "int32",
    torch.int16: "int16",
    torch.int8: "int8",
    torch.uint64: "uint64",
    torch.uint32: "uint32",
    torch.uint16: "uint16",
    torch.uint8: "uint8",
    torch.bool: "bool",
}

_PAIRS = (torch.complex64, torch.complex128)

_OPERATIONS = {
    ReduceOp.SUM: "sum",
    ReduceOp.AVG: "avg",
    ReduceOp.PRODUCT: "product",
    ReduceOp.MIN: "min",
    ReduceOp.MAX: "max",
    ReduceOp.BAND: "band",
    ReduceOp.BOR: "bor",
    ReduceOp.BXOR: "bxor",
    ReduceOp.PREMUL_SUM: "premul_sum",
}


def is_reducible(dtype: torch.dtype) -> bool:
    """Whether weft computes with elements of this type."""
    return dtype in _COMPUTED or dtype in _PAIRS


def check_reducible(dtype: torch.dtype) -> None:
    """Raises unless weft computes with elements of this type."""
    if not is_reducible(dtype):
        allowed = ", ".join(map(str, (*_COMPUTED, *_PAIRS)))
        raise UnsupportedError(f"elements of type {dtype} are not supported: expected one of {allowed}")


def computed(tensor: Tensor) -> str:
    """The element type's name, for operations that compute with the elements."""
    name = _COMPUTED.get(tensor.dtype)
    if name is None:
        raise UnsupportedError(
            f"cannot reduce elements of type {tensor.dtype}: expected one of {', '.join(map(str, _COMPUTED))}"
        )
    return name


def real(tensor: Tensor, op: str) -> Tensor:
    """The numbers that `op` combines: of complex elements, their real and imaginary parts."""
    if not tensor.is_complex():
        return tensor
    if op not in _LINEAR:
        raise UnsupportedError(f"cannot reduce complex elements by {op}: expected one of {', '.join(_LINEAR)}")
    return torch.view_as_real(tensor)


def moved(tensor: Tensor) -> tuple[str, int]:
    """The type as which elements are moved, and how many of it make one element of the tensor."""
    name = _COMPUTED.get(tensor.dtype)
    return ("uint8", tensor.itemsize) if name is None else (name, 1)


def reduction(op: ReduceOp) -> tuple[str, float]:
    """The operation's name, and the factor by which this rank's elements are multiplied first."""
    if op == _SUM:  # type: ignore[comparison-overlap]  # faster than the table, and most frequent
        return "sum", 1.0
    name = _OPERATIONS.get(op.op)
    if name is None:
        raise UnsupportedError(f"{op.op} is not supported: expected one of {', '.join(_OPERATIONS.values())}")
    return name, float(op.factor) if name == "premul_sum" else 1.0


def seconds(timeout: timedelta) -> float | None:
    """A timeout in seconds; None where torch says "not set", which is zero or less."""
    return timeout.total_seconds() if timeout > _UNSET else None


_SUM = ReduceOp.SUM
_LINEAR = ("sum", "avg", "premul_sum")
_UNSET = timedelta(0)
