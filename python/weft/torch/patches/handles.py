"""Access to weft's own handles for Python callers, in place of torch's wrappers.

[Note: Hidden handles] From torch 2.14 on, C++ wraps every handle that a backend written in Python
returns. The wrapper forwards `wait` and `get_future` only: `is_completed()` stays False for ever,
and `_source_rank()`, which `torch.distributed.recv` needs to tell who has sent, raises. A process
group has no place for attributes of its own and cannot change its class, so it is the class
`ProcessGroup` whose methods are extended: they do what they did, and if a backend of weft's has
made a handle meanwhile on the same thread, they return it instead of its wrapper. C++ callers (DDP)
and other backends see no difference.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.distributed import ProcessGroup

if TYPE_CHECKING:
    from weft.torch.device.work import DeviceWork
    from weft.torch.work import WeftWork

__all__ = ["offer", "reveal_handles"]

_METHODS = (
    "_allgather_base",
    "_end_coalescing",
    "_reduce_scatter_base",
    "all_gather_single",
    "all_gather_single_coalesced",
    "all_to_all_single",
    "allgather",
    "allgather_coalesced",
    "allgather_into_tensor_coalesced",
    "allreduce",
    "allreduce_coalesced",
    "alltoall",
    "alltoall_base",
    "barrier",
    "broadcast",
    "gather",
    "recv",
    "recv_anysource",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "reduce_scatter_tensor_coalesced",
    "scatter",
    "send",
)


class _Caller(threading.local):
    """What a thread that is within a method of a process group waits for."""

    wants = False
    handle: WeftWork | DeviceWork | None = None


_caller = _Caller()
_revealed = False


def offer(work: WeftWork | DeviceWork) -> None:
    """Says that a backend returns `work` to torch."""
    if _caller.wants:
        work.in_python = True
        _caller.handle = work


def reveal_handles() -> None:
    """Extends the methods of `ProcessGroup`, the first time: see [Note: Hidden handles]."""
    global _revealed
    if _revealed:
        return
    _revealed = True
    for name in _METHODS:
        if hasattr(ProcessGroup, name):
            setattr(ProcessGroup, name, _revealing(name, getattr(ProcessGroup, name)))


def _revealing(name: str, wrapped: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: ProcessGroup, *arguments: Any, **named: Any) -> Any:
        _caller.wants = True
        try:
            wrapper = wrapped(self, *arguments, **named)
            handle = _caller.handle
        finally:
            _caller.wants = False
            _caller.handle = None
        return wrapper if handle is None else handle

    # pybind11 takes a Python method for an override by a subclass, unless the call comes from one
    # of the same name.
    method.__code__ = method.__code__.replace(co_name=name)
    method.__name__, method.__doc__ = name, wrapped.__doc__
    return method
