"""Element types of arrays and tensors, with the native layer's types as those for computation."""

from __future__ import annotations

import dataclasses

import numpy as np

from weft import _weft

__all__ = ["DTYPES", "DType", "of_dlpack", "of_numpy"]


@dataclasses.dataclass(frozen=True, slots=True)
class DType:
    """An element type."""

    name: str
    itemsize: int

    @property
    def computes(self) -> bool:
        """Whether reductions accept it; others are only moved."""
        return self.name in DTYPES


DTYPES = {name: DType(name, itemsize) for name, itemsize in _weft.element_types()}

_DLPACK_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}
_NUMPY: dict[np.dtype, DType | None] = {}


def of_numpy(dtype: np.dtype) -> DType | None:
    """The element type of a NumPy array.

    None if its elements are not plain memory in this machine's byte order.
    """
    if dtype not in _NUMPY:
        _NUMPY[dtype] = _from_numpy(dtype)
    return _NUMPY[dtype]


def of_dlpack(code: int, bits: int, lanes: int) -> DType:
    """The element type that a DLPack tensor declares."""
    name = "bool" if code == 6 else f"{_DLPACK_KINDS.get(code, 'other')}{bits}"
    if lanes == 1 and name in DTYPES:
        return DTYPES[name]
    return DType(f"dlpack type {code} of {bits} bits", (bits * lanes + 7) // 8)


def _from_numpy(dtype: np.dtype) -> DType | None:
    if dtype.hasobject or not dtype.isnative or dtype.itemsize == 0:
        return None
    return DTYPES.get(dtype.name) or DType(dtype.name, dtype.itemsize)
