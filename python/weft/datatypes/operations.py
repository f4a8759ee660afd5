"""Native operations, each looked up in a table: names are not parsed in every call."""

from __future__ import annotations

import functools

from weft import _weft

__all__ = ["native_operation"]


def native_operation(collective: str, dtype: str, itemsize: int, op: object = None, root: int = 0) -> _weft.Operation:
    """What calls of one kind share. See `_weft.Operation`.

    Raises:
        weft.ArgumentError: There is no such operation.
        weft.UnsupportedError: It is not defined for elements of this type.
    """
    try:
        return _known(collective, dtype, itemsize, op, root)
    except TypeError:  # what cannot be hashed is no operation, which it says
        return _weft.Operation(collective, dtype, itemsize, op, root)


_known = functools.lru_cache(maxsize=1024)(_weft.Operation)
