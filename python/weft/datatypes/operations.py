"""Native operations, each looked up in a table: names are not parsed in every call."""

from __future__ import annotations

import functools

from weft import _weft

__all__ = ["native_operation"]


def native_operation(collective: str, dtype: str, itemsize: int, op: object = None, root: int = 0) -> _weft.Operation:
    """The native operation for calls of one kind. See `_weft.Operation`.

    Raises:
        weft.ArgumentError: There is no such operation.
        weft.UnsupportedError: It is not defined for elements of this type.
    """
    if op is None or isinstance(op, str):
        return _known(collective, dtype, itemsize, op, root)
    # A factor: there are many, and 0.0 equals -0.0. Or no operation, which is refused.
    return _weft.Operation(collective, dtype, itemsize, op, root)


_known = functools.lru_cache(maxsize=1024)(_weft.Operation)
