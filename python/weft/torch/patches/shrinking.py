"""Process groups that `shrink_group` makes from weft's backends.

[Note: Type of a shrunk group's backend] torch registers any backend for the processor as Gloo's,
and its `DistributedDataParallel` then reads Gloo's members from it, which crashes. So weft's
backends are registered once more, as their own kind.

[Note: Ranks of a shrunk group] The list of excluded ranks has numbers within the group, and torch
takes them out of a list of numbers in the world. So the backend's list replaces the elements of
torch's, which torch uses afterwards.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed import ProcessGroup, distributed_c10d

__all__ = ["mend_shrunk_groups"]

_FUNCTION = "_create_shrunk_process_group"
_mended = False


def mend_shrunk_groups(backend_class: type[Any]) -> None:
    """Extends torch's function that wraps a smaller backend, the first time.

    See [Note: Type of a shrunk group's backend] and [Note: Ranks of a shrunk group].
    """
    global _mended
    if not _mended and hasattr(distributed_c10d, _FUNCTION):
        _mended = True
        setattr(distributed_c10d, _FUNCTION, _mending(getattr(distributed_c10d, _FUNCTION), backend_class))


def _mending(create: Callable[..., ProcessGroup], backend_class: type[Any]) -> Callable[..., ProcessGroup]:
    @functools.wraps(create)
    def created(new_backend: Any, remaining_ranks: list[int], *arguments: Any, **named: Any) -> ProcessGroup:
        process_group = create(new_backend, remaining_ranks, *arguments, **named)
        if isinstance(new_backend, backend_class):
            if new_backend.remaining_ranks is not None:
                remaining_ranks[:] = new_backend.remaining_ranks
            kind = ProcessGroup.BackendType.CUSTOM
            process_group._register_backend(torch.device("cpu"), kind, new_backend)
            process_group._set_default_backend(kind)
        return process_group

    return created
