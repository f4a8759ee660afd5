"""Capabilities that a process group's C++ half denies for backends written in Python.

torch's class for such backends does not pass on every query: it forwards the registration of abort
hooks, and not whether there are any.
"""

from __future__ import annotations

import functools

from torch.distributed import ProcessGroup

from weft.errors import ArgumentError
from weft.torch.lookup import backend_of

__all__ = ["show_capabilities"]

_NAMES = ("supports_abort_hooks",)


@functools.cache
def show_capabilities() -> None:
    """Extends the properties of `ProcessGroup`, the first time."""
    for name in _NAMES:
        original = getattr(ProcessGroup, name, None)
        if isinstance(original, property):
            setattr(ProcessGroup, name, _asking_backend(name, original))


def _asking_backend(name: str, original: property) -> property:
    def asked(self: ProcessGroup) -> bool:
        try:
            return bool(getattr(backend_of(self), name))
        except ArgumentError:  # another backend's
            return bool(original.__get__(self))

    return property(asked, doc=original.__doc__)
