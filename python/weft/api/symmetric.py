"""NumPy arrays in symmetric memory."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from weft import _weft
from weft.api.calls import RankInGroup
from weft.api.one_sided import ArrayKind, OneSided, Window
from weft.datatypes.dtypes import of_numpy
from weft.errors import ArgumentError, UnsupportedError

__all__ = ["SymmetricArray"]


class SymmetricArray(OneSided, np.ndarray):  # type: ignore[misc]  # `put` is OpenSHMEM's, not NumPy's
    """An array in symmetric memory, with one-sided operations on the other ranks' parts.

    Made by `Group.symmetric`. Otherwise it is a NumPy array like any other, except for `put`: use
    an assignment for what `numpy.ndarray.put` does. Its views, and arrays computed from it, have no
    one-sided operations.
    """

    _window: Window | None

    @classmethod
    def of(cls, native: _weft.Symmetric, member: RankInGroup, shape: tuple[int, ...], dtype: np.dtype) -> Self:
        """The array in this memory."""
        known = of_numpy(dtype)
        if known is None:
            raise UnsupportedError(f"dtype={dtype!r} is not supported: expected numbers in this machine's byte order")
        plain = np.asarray(native).view(dtype).reshape(shape)
        array = plain.view(cls)
        kind = ArrayKind(
            lambda new: np.empty(new, dtype),
            lambda part: part.view(dtype).reshape(shape),
        )
        array._window = Window(native, member, known, shape, kind)
        return array

    def __array_finalize__(self, source: Any) -> None:
        """Every array but the whole one begins without a window."""
        self._window = None

    @property
    def window(self) -> Window:
        """The symmetric buffer behind the array."""
        if self._window is None:
            raise ArgumentError(
                "this array is a view of a symmetric buffer, or computed from one: "
                "one-sided operations are those of the array that group.symmetric returned"
            )
        return self._window
