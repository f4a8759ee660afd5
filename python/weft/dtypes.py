"""The element types that weft computes with."""

from __future__ import annotations

import dataclasses

import numpy as np

__all__ = ["DTYPES", "DType", "of_dlpack", "of_numpy"]


@dataclasses.dataclass(frozen=True, slots=True)
class DType:
    """An element type."""

    name: str
    itemsize: int
    kind: str
    """`float`, `int`, `uint` or `bool`; `bytes` for types that weft moves but does not compute with."""

    @property
    def computes(self) -> bool:
        """Whether reductions accept it."""
        return self.kind != "bytes"


DTYPES = {
    dtype.name: dtype
    for dtype in (
        DType("float64", 8, "float"),
        DType("float32", 4, "float"),
        DType("float16", 2, "float"),
        DType("bfloat16", 2, "float"),
        DType("int64", 8, "int"),
        DType("int32", 4, "int"),
        DType("int16", 2, "int"),
        DType("int8", 1, "int"),
        DType("uint64", 8, "uint"),
        DType("uint32", 4, "uint"),
        DType("uint16", 2, "uint"),
        DType("uint8", 1, "uint"),
        DType("bool", 1, "bool"),
    )
}

_DLPACK_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}
_NUMPY: dict[np.dtype, DType | None] = {}


def of_numpy(dtype: np.dtype) -> DType | None:
    """The element type of a NumPy array; None if its elements are not plain memory in this machine's byte order."""
    if dtype not in _NUMPY:
        _NUMPY[dtype] = _from_numpy(dtype)
    return _NUMPY[dtype]


def of_dlpack(code: int, bits: int, lanes: int) -> DType:
    """The element type that a DLPack tensor declares."""
    name = "bool" if code == 6 else f"{_DLPACK_KINDS.get(code, 'other')}{bits}"
    if lanes == 1 and name in DTYPES:
        return DTYPES[name]
    return DType(f"dlpack type {code} of {bits} bits", (bits * lanes + 7) // 8, "bytes")


def _from_numpy(dtype: np.dtype) -> DType | None:
    if dtype.hasobject or not dtype.isnative or dtype.itemsize == 0:
        return None
    return DTYPES.get(dtype.name) or DType(dtype.name, dtype.itemsize, "bytes")
