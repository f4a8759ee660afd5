"""Functions of torch.distributed limited to its own backends before torch 2.14.

[Note: Refusals by name] `monitored_barrier` checks for Gloo by name and `split_group` for CUDA's
backend, before either reaches the group. So the two functions are extended. They behave as before
for all groups except weft's.
"""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed import ProcessGroup, distributed_c10d

from weft.torch.backend_name import BACKEND_NAME

__all__ = ["extend_functions"]

_extended = False


def extend_functions() -> None:
    """Extends the functions, the first time: see [Note: Refusals by name]."""
    global _extended
    if _extended:
        return
    _extended = True
    for name, extend in (("monitored_barrier", _extend_monitored_barrier), ("split_group", _extend_split_group)):
        extended = extend(getattr(distributed_c10d, name))
        setattr(distributed_c10d, name, extended)
        setattr(dist, name, extended)


def _extend_monitored_barrier(original: Any) -> Any:
    @functools.wraps(original)
    def monitored_barrier(
        group: ProcessGroup | None = None, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        if _is_of_weft(group):
            _given(group).monitored_barrier(timeout, wait_all_ranks)
        else:
            original(group, timeout, wait_all_ranks)

    return monitored_barrier


def _extend_split_group(original: Any) -> Any:
    @functools.wraps(original)
    def split_group(
        parent_pg: ProcessGroup | None = None,
        split_ranks: list[list[int]] | None = None,
        timeout: timedelta | None = None,
        pg_options: Any = None,
        group_desc: str | None = None,
        **more: Any,
    ) -> Any:
        if not split_ranks or not _is_of_weft(parent_pg):
            return original(parent_pg, split_ranks, timeout, pg_options, group_desc, **more)
        return _split(_given(parent_pg), split_ranks, timeout, pg_options, group_desc)

    return split_group


def _split(
    parent: Any,
    split_ranks: list[list[int]],
    timeout: timedelta | None,
    options: Any,
    description: str | None,
) -> Any:
    """A group of the ranks of `parent` that are listed together with this one, in this order.

    As from torch 2.14 on, it is `NON_GROUP_MEMBER` if this rank is not listed.
    """
    parent.splits += 1
    ranks = next((ranks for ranks in split_ranks if parent.rank() in ranks), None)
    if ranks is None:
        return dist.GroupMember.NON_GROUP_MEMBER
    world = distributed_c10d._world
    # The members must agree on the name. They agree on these, but not on the other groups of each.
    name = f"{parent.group_name}:split{parent.splits}:{min(ranks)}"
    members = [dist.get_global_rank(parent, rank) for rank in ranks]
    _, store = world.pg_map[distributed_c10d._get_default_group()]
    made, _ = distributed_c10d._new_process_group_helper(
        len(ranks),
        ranks.index(parent.rank()),
        members,
        dist.Backend(BACKEND_NAME),
        store,
        distributed_c10d.GroupName(name),
        backend_options=options,
        timeout=timeout or parent.options._timeout,
        group_desc=description or f"{parent.group_desc}:split",
    )
    world.pg_group_ranks[made] = {member: rank for rank, member in enumerate(members)}
    return made


def _given(group: ProcessGroup | None) -> Any:
    """The group of the argument; a `WeftProcessGroup` if `_is_of_weft`."""
    return distributed_c10d._get_default_group() if group is None else group


def _is_of_weft(group: ProcessGroup | None) -> bool:
    return isinstance(group or distributed_c10d._get_default_group(), ProcessGroup) and (
        dist.get_backend(group) == BACKEND_NAME
    )
