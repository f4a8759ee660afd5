"""Process groups of the ranks that are left of one that broke."""

from __future__ import annotations

from datetime import timedelta

import torch.distributed as dist
from torch.distributed import ProcessGroup, distributed_c10d

from weft.observability import reports
from weft.torch.arguments import seconds
from weft.torch.backend_name import BACKEND_NAME
from weft.torch.groups import already_made
from weft.torch.lookup import backend_of

__all__ = ["shrink"]


def shrink(group: ProcessGroup | None = None, *, timeout: timedelta | None = None) -> ProcessGroup:
    """A process group of the ranks that are left of one that broke: see `weft.Group.shrink`.

    Every rank of the group that lives calls it, after the error or before. The new group is one as
    `torch.distributed.new_group` makes it: it orders its ranks as they were, keeps their global
    numbers, and is not the default group. It is for CPU tensors. The old group stays as it is,
    broken; the store is not asked.

    Args:
        group: The process group, or the default one.
        timeout: How long all of it may take; as the group's operations if not given.

    Raises:
        weft.ArgumentError: The group's backend for the CPU is not weft.
        weft.Error: As `weft.Group.shrink`.
    """
    parent = distributed_c10d._get_default_group() if group is None else group
    backend = backend_of(parent)
    # Each group is shrunk once, so this is unlike any other's name.
    name = f"{parent.group_name}:survivors"
    old = backend.weft_group
    native = old.shrink(f"{old.name}:survivors", None if timeout is None else seconds(timeout))
    reports.made(native)
    global_ranks = dist.get_process_group_ranks(parent)
    members = [global_ranks[rank] for rank in old.ranks_of(native)]
    world = distributed_c10d._world
    _, store = world.pg_map[parent]
    with already_made(native):
        made, _ = distributed_c10d._new_process_group_helper(
            native.size,
            native.rank,
            members,
            dist.Backend(BACKEND_NAME),
            store,
            distributed_c10d.GroupName(name),
            timeout=backend.options._timeout,
            group_desc=f"{parent.group_desc}:survivors",
        )
    assert isinstance(made, ProcessGroup), "this rank is a member"
    world.pg_group_ranks[made] = {member: rank for rank, member in enumerate(members)}
    return made
