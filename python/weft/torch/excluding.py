"""Backends without the ranks that the program names, for `torch.distributed.shrink_group`.

[Note: Named survivors] torch renumbers the ranks by the list that the program passes, so the new
group must have exactly the others: it is split off, by its members alone, which wait for each other
over their links. `weft.torch.shrink` agrees on the members instead, and needs no list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch._C._distributed_c10d import Store
from torch.distributed import ProcessGroup, distributed_c10d

from weft.api.group import Group
from weft.bootstrap.stores import rendezvous
from weft.errors import ArgumentError
from weft.observability import reports
from weft.torch.arguments import seconds
from weft.torch.lookup import backend_of

if TYPE_CHECKING:
    from weft import _weft

__all__ = ["SHRINK_ABORT", "group_without", "ranks_without", "store_without"]

SHRINK_ABORT = 1
"""torch's flag: end the operations under way first."""


def group_without(
    group: _weft.Group, excluded: Sequence[int], timeout: timedelta, settings: Mapping[str, Any]
) -> _weft.Group:
    """The group of the other ranks, in their order: see [Note: Named survivors].

    Every other rank calls this with the same list, and the same native `settings` of the new group.

    Raises:
        weft.ArgumentError: This rank is in the list, or the list has a number that is no rank.
        weft.PeerLost: A rank that is not in the list has ended.
        weft.Timeout: Such a rank has not made the same call.
    """
    wrong = sorted(rank for rank in excluded if not 0 <= rank < group.size)
    if wrong:
        raise ArgumentError(f"ranks {wrong} cannot be excluded: weft's group {group.name} has {group.size} ranks")
    if group.rank in excluded:
        raise ArgumentError(
            f"rank {group.rank} of weft's group {group.name} is to be excluded, and so must not call shrink_group"
        )
    members = [rank for rank in range(group.size) if rank not in excluded]
    name = f"{group.name} without {', '.join(map(str, sorted(excluded)))}"
    made = group.split(members, name, waits=True, timeout=seconds(timeout), **settings)
    assert made is not None, "this rank is not excluded"
    reports.made(made)
    return made


def store_without(backend: Any, made: _weft.Group, excluded: Sequence[int], timeout: timedelta) -> Store | None:
    """The store of a smaller group; None if torch does not know the process group of `backend`.

    torch opens the old group's store again, which may have ended with the rank that serves it: the
    world's rank 0, or this group's after an earlier call. If it is excluded, all ranks of the new
    group, which call this, make another one.
    """
    from weft.torch.survivors import meeting_of

    process_group = _process_group_of(backend)
    if process_group is None:
        return None
    name, store = distributed_c10d._world.pg_map[process_group]
    global_ranks = dist.get_process_group_ranks(process_group)
    if 0 in excluded or 0 in (global_ranks[rank] for rank in excluded):
        store = meeting_of(Group(made), timeout, rendezvous(distributed_c10d._get_default_store()))
        distributed_c10d._world.pg_map[process_group] = name, store
    return store


def ranks_without(backend: Any, excluded: Sequence[int]) -> list[int] | None:
    """The other ranks by their numbers in the world; None as for `store_without`."""
    process_group = _process_group_of(backend)
    if process_group is None:
        return None
    global_ranks = dist.get_process_group_ranks(process_group)
    return [global_ranks[rank] for rank in range(len(global_ranks)) if rank not in excluded]


def _process_group_of(backend: Any) -> ProcessGroup | None:
    for process_group in distributed_c10d._world.pg_map:
        try:
            if backend_of(process_group) is backend:
                return process_group
        except ArgumentError:  # another backend's
            continue
    return None
