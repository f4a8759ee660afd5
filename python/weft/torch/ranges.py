"""Named ranges in torch's profiler, such as `weft:all_reduce`, with shapes and bytes.

A range begins at the call and ends when the call returns: with the operation if torch waits for it
there, else before. To end it with an operation that continues would need a future, and so a thread,
for each.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor
from torch._C._profiler import _RecordFunctionFast
from torch.autograd import profiler

from weft.api.request import PreparedCall

__all__ = ["of_calls", "of_message"]

_OFF = contextlib.nullcontext()


def of_calls(calls: Sequence[PreparedCall], tensors: Sequence[Any]) -> contextlib.AbstractContextManager[Any]:
    """The range of calls of one collective; used only while a profiler is active.

    Args:
        calls: All of them.
        tensors: The tensors that they write, in lists or not.
    """
    name = calls[0].request.stated()["collective"].replace("-", "_") if calls else "nothing"
    return _range(name, list(_flat(tensors)), sum(map(_bytes, calls)))


def of_message(name: str, tensor: Tensor) -> contextlib.AbstractContextManager[Any]:
    """The range of a message between two ranks; nothing without an active profiler."""
    return _range(name, [tensor], tensor.nbytes) if profiler._is_profiler_enabled else _OFF


def _range(name: str, tensors: list[Tensor], nbytes: int) -> contextlib.AbstractContextManager[Any]:
    return _RecordFunctionFast(f"weft:{name}", tensors, {"bytes": nbytes})


def _flat(tensors: Iterable[Any]) -> Iterable[Tensor]:
    for one in tensors:
        if isinstance(one, Tensor):
            yield one
        else:
            yield from _flat(one)


def _bytes(call: PreparedCall) -> int:
    """The larger of what a call reads and writes: at least one of them is the whole message."""
    reads = 0 if call.source is None else call.source.nbytes
    writes = 0 if call.target is None else call.target.array.nbytes
    return max(reads, writes)
