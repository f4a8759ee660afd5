"""The lifetime of handles beyond the last Python reference to them.

[Note: Handles in C++] DDP's `join` passes the handle of an all-reduce to its reducer, in C++, and
drops it. A class that is written in Python then loses its Python half, and the reducer would wait
forever for the rest. So the handle gets the lifetime of the reducer.
"""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

from torch._C._distributed_c10d import Reducer

if TYPE_CHECKING:
    from torch.distributed import Work

__all__ = ["keep_handles_of_reducers"]

_handles: weakref.WeakKeyDictionary[Reducer, Work] = weakref.WeakKeyDictionary()
_give_handle = Reducer._set_forward_pass_work_handle


def keep_handles_of_reducers() -> None:
    """Extends `Reducer`: see [Note: Handles in C++]."""
    Reducer._set_forward_pass_work_handle = _give_and_keep_handle  # type: ignore[assignment, method-assign]


@functools.wraps(_give_handle)
def _give_and_keep_handle(self: Reducer, handle: Work, *arguments: Any) -> None:
    _give_handle(self, handle, *arguments)
    _handles[self] = handle
