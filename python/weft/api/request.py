"""One call of a collective: the native request, and the memory that it reads and writes.

All adapters share it (`weft.api.calls` for arrays, `weft.torch` for tensors); they differ in the
shapes that they accept.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from weft import _weft
from weft.api.staging import Array, Staged
from weft.datatypes.operations import native_operation
from weft.datatypes.ops import AverageOf, Op, PremulSum

__all__ = ["Counts", "PreparedCall", "call"]

Counts = int | list[int] | tuple[list[int], list[int]]


@dataclasses.dataclass(slots=True)
class PreparedCall:
    """A request, the owners of its memory, and the caller's result."""

    request: _weft.Request
    source: Any = None
    target: Staged | None = None
    result: Any = None

    def finish(self) -> Any:
        """Returns the caller's result once the operation has ended."""
        if self.target is not None:
            self.target.finish()
        return self.result


def call(
    collective: str,
    counts: Counts,
    source: Array | None,
    target: Staged | None,
    *,
    op: Op | PremulSum | AverageOf | None = None,
    root: int = 0,
    result: Any = None,
) -> PreparedCall:
    """A call on contiguous memory.

    `counts` are elements of the arrays. Without `source` it works in place.
    """
    writes = None if target is None else target.array
    memory = source or writes
    name, itemsize = ("uint8", 1) if memory is None else (memory.dtype.name, memory.dtype.itemsize)
    request = _weft.Request(
        native_operation(collective, name, itemsize, op, root),
        counts,
        None if source is None else source.pointer,
        None if writes is None else writes.pointer,
    )
    return PreparedCall(request, source, target, result)
