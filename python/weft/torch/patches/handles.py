"""Access to weft's own handles for Python callers, instead of torch's wrappers.

[Note: Hidden handles] From torch 2.14 on, C++ wraps every handle that a backend written in Python
returns. The wrapper forwards `wait` and `get_future` only: `is_completed()` stays False forever,
and `_source_rank()`, which `torch.distributed.recv` needs to return the sender, raises. A process
group has no place for additional attributes and cannot change its class, so the methods of the
class `ProcessGroup` are extended: they behave as before, and if a backend of weft has meanwhile
made a handle for this process group on the same thread, they return it instead of its wrapper. C++
callers (DDP) and other backends see no difference.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol, cast

from torch.distributed import ProcessGroup

if TYPE_CHECKING:
    from weft import _weft

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


class OwnWork(Protocol):
    """A handle of weft."""

    in_python: bool
    """Whether a caller in Python has it, not only torch's wrapper."""


class _Caller(threading.local):
    """The handle that a thread within a method of a process group waits for."""

    wants = False
    offered: tuple[OwnWork, _weft.Group] | None = None


_caller = _Caller()
_revealed = False
_groups: weakref.WeakKeyDictionary[ProcessGroup, list[_weft.Group]] = weakref.WeakKeyDictionary()
"""The groups of weft that serve a process group, once it has had a handle from one of them."""


def offer(work: OwnWork, group: _weft.Group) -> None:
    """Notes that a backend, which has this group, returns `work` to torch."""
    if _caller.wants:
        work.in_python = True
        _caller.offered = work, group


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
    def original(self: ProcessGroup, *arguments: Any, **named: Any) -> Any:
        return wrapped(self, *arguments, **named)

    # pybind11 takes a Python method for an override by a subclass, unless the call comes from one
    # of the same name. It then inspects that frame's variables, which takes longer than the call.
    same_name = cast(FunctionType, original)
    same_name.__code__ = same_name.__code__.replace(co_name=name)

    @functools.wraps(wrapped)
    def method(self: ProcessGroup, *arguments: Any, **named: Any) -> Any:
        call = wrapped if type(self) is ProcessGroup else original
        if arguments and not getattr(arguments[-1], "asyncOp", True) and not _caller.wants:
            return call(self, *arguments, **named)  # there is no handle
        # Hooks and modes of the caller may call other methods within this one.
        around = _caller.wants, _caller.offered
        _caller.wants, _caller.offered = True, None
        try:
            wrapper = call(self, *arguments, **named)
            offered = _caller.offered
        finally:
            _caller.wants, _caller.offered = around
        if offered is None or offered[1] not in _groups_of(self, offered[1]):
            return wrapper
        return offered[0]

    return method


def _groups_of(process_group: ProcessGroup, offering: _weft.Group) -> list[_weft.Group]:
    """The groups of weft that serve a process group, also the offering one, which may be new."""
    known = _groups.get(process_group, [])
    if offering not in known:
        backends = (process_group._get_backend(device) for device in process_group._device_types)
        inner: list[Any] = [getattr(backend, "wrapped_pg", backend) for backend in backends]  # as in `lookup`
        known = [backend._group for backend in inner if hasattr(backend, "weft_operations")]
        _groups[process_group] = known
    return known
