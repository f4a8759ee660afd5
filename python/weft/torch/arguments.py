"""Conversion of torch's element types, reduction operations and timeouts to weft's."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, get_args

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from weft.datatypes.dtypes import DTYPES, DType
from weft.datatypes.ops import Op, PremulSum
from weft.errors import UnsupportedError
from weft.parsing import SECONDS_MAX

__all__ = ["UNSET", "check_reducible", "element_type", "is_reducible", "real", "reduction", "seconds"]

_TYPES = {getattr(torch, name): dtype for name, dtype in DTYPES.items()}
_PAIRS = (torch.complex64, torch.complex128)
_OPERATIONS: dict[Any, Op] = {getattr(ReduceOp, name.upper()): name for name in get_args(Op)}
_LINEAR = ("sum", "avg")
_SUM = ReduceOp.SUM
UNSET = timedelta(0)
"""Timeouts up to this one mean \"not set\"."""


def element_type(dtype: torch.dtype) -> DType:
    """The element type; types that weft does not compute with keep torch's name."""
    return _TYPES.get(dtype) or DType(str(dtype).removeprefix("torch."), dtype.itemsize)


def is_reducible(dtype: torch.dtype) -> bool:
    """Whether weft computes with elements of this type."""
    return dtype in _TYPES or dtype in _PAIRS


def check_reducible(dtype: torch.dtype) -> None:
    """Raises unless weft computes with elements of this type."""
    if not is_reducible(dtype):
        allowed = ", ".join(map(str, (*_TYPES, *_PAIRS)))
        raise UnsupportedError(f"elements of type {dtype} are not supported: expected one of {allowed}")


def real(tensor: Tensor, op: Op | PremulSum) -> Tensor:
    """The numbers that `op` combines: for complex elements, their real and imaginary parts."""
    if not tensor.is_complex():
        return tensor
    if op not in _LINEAR and not isinstance(op, PremulSum):
        allowed = ", ".join((*_LINEAR, "premul_sum"))
        raise UnsupportedError(f"cannot reduce complex elements by {op}: expected one of {allowed}")
    return torch.view_as_real(tensor)


def reduction(op: ReduceOp) -> Op | PremulSum:
    """The operation in the form of `weft.Group.all_reduce`."""
    if op == _SUM:  # type: ignore[comparison-overlap]  # faster than the table, and most frequent
        return "sum"
    if op.op == ReduceOp.PREMUL_SUM:
        return PremulSum(float(op.factor))
    name = _OPERATIONS.get(op.op)
    if name is None:
        raise UnsupportedError(f"{op.op} is not supported: expected one of {', '.join(_OPERATIONS.values())}")
    return name


def seconds(timeout: timedelta) -> float | None:
    """A timeout in seconds; None if torch has set none."""
    return min(timeout.total_seconds(), SECONDS_MAX) if timeout > UNSET else None
