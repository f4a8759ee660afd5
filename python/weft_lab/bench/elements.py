"""Element types of benchmarks, by name, with the NumPy arrays that hold them.

NumPy has no `bfloat16`: its elements are in arrays of 16-bit words.
"""

from __future__ import annotations

import dataclasses

import numpy as np

__all__ = ["ALIASES", "BFLOAT16", "ELEMENT_TYPES", "EXACT_RANKS_MAX", "ElementType", "find"]

BFLOAT16 = "bfloat16"

EXACT_RANKS_MAX = {BFLOAT16: 36}
"""With more ranks, not every sum of the measured numbers is a number of this type."""


@dataclasses.dataclass(frozen=True)
class ElementType:
    """An element type."""

    name: str

    @property
    def storage(self) -> np.dtype:
        """The elements of the arrays that hold it."""
        return np.dtype(np.uint16 if self.name == BFLOAT16 else self.name)

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        return self.storage.itemsize

    def encoded(self, numbers: np.ndarray) -> np.ndarray:
        """Whole numbers as elements of this type, in arrays of `storage`."""
        if self.name != BFLOAT16:
            return numbers.astype(self.storage)
        # Rounded to the nearest, ties to even: the upper half of a float32.
        words = numbers.astype(np.float32).view(np.uint32)
        return ((words + 0x7FFF + (words >> 16 & 1)) >> 16).astype(np.uint16)


ELEMENT_TYPES = ("float32", "float64", "float16", BFLOAT16, "int32", "int64", "int8", "uint8")

ALIASES = {
    "float": "float32",
    "fp32": "float32",
    "double": "float64",
    "fp64": "float64",
    "half": "float16",
    "fp16": "float16",
    "bf16": BFLOAT16,
    "int": "int32",
    "char": "int8",
}
"""Other names, such as those of nccl-tests."""


def find(name: str) -> ElementType:
    """The element type of this name."""
    return ElementType(name)
