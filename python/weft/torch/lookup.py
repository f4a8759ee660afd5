"""Lookup of weft's backend in a process group of torch."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed import ProcessGroup, distributed_c10d

from weft.api.group import Group
from weft.errors import ArgumentError

__all__ = ["backend_of", "group_of"]

_CPU = torch.device("cpu")


def backend_of(group: ProcessGroup | None) -> Any:
    """The backend of the group, or of the default group, for the CPU, which must be weft.

    Raises:
        weft.ArgumentError: It is not weft, or this rank is not in the group.
    """
    group = distributed_c10d._get_default_group() if group is None else group
    if not isinstance(group, ProcessGroup):  # `GroupMember.NON_GROUP_MEMBER`
        raise ArgumentError(f"group={group!r} is not allowed: this rank is not in it")
    try:
        backend = group._get_backend(_CPU)
    except RuntimeError as error:
        raise ArgumentError(f"group {group.group_name} has no backend for the CPU: expected weft") from error
    backend = getattr(backend, "wrapped_pg", backend)  # TORCH_DISTRIBUTED_DEBUG=DETAIL wraps it
    if not hasattr(backend, "weft_operations"):
        raise ArgumentError(
            f"the backend of group {group.group_name} for the CPU is {backend.name()}: expected weft, as in "
            'init_process_group("weft") or new_group(backend="weft")'
        )
    return backend


def group_of(group: ProcessGroup | None = None) -> Group:
    """The group, or the default group, as a group of weft.

    Raises:
        weft.ArgumentError: As for `backend_of`.
    """
    return Group(backend_of(group).weft_group)
