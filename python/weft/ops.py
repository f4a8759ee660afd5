"""How contributions are combined."""

from __future__ import annotations

import dataclasses

from weft.dtypes import DType
from weft.errors import ArgumentError, UnsupportedError

__all__ = ["OPS", "PremulSum", "resolve"]

OPS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")
_BITWISE = ("band", "bor", "bxor")


@dataclasses.dataclass(frozen=True)
class PremulSum:
    """The sum, with each rank's contribution multiplied by that rank's factor first."""

    factor: float


def resolve(op: str | PremulSum, dtype: DType) -> tuple[str, float]:
    """The operation's name and factor, if it is defined for elements of this type."""
    if not dtype.computes:
        raise UnsupportedError(f"cannot reduce elements of type {dtype.name}: weft only moves them")
    if isinstance(op, PremulSum):
        if dtype.kind != "float":
            raise UnsupportedError(f"PremulSum is defined for floating-point elements, not for {dtype.name}")
        return "premul_sum", float(op.factor)
    if op not in OPS:
        raise ArgumentError(f"op={op!r} is not allowed: expected one of {', '.join(OPS)} or weft.PremulSum(factor)")
    if op in _BITWISE and dtype.kind == "float":
        raise UnsupportedError(f"{op} is defined for integers and bool, not for {dtype.name}")
    if op == "avg" and dtype.kind == "bool":
        raise UnsupportedError("avg is not defined for bool: expected a numeric type")
    return op, 1.0
