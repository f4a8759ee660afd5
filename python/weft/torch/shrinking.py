"""Process groups of the surviving ranks of a broken one."""

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
    """Makes a process group of the surviving ranks of a broken one: see `weft.Group.shrink`.

    Every surviving rank of the group calls it, before or after the error. The new group is like one
    of `torch.distributed.new_group`: it keeps the order and the global numbers of its ranks, and is
    not the default group. It is for CPU tensors. The old group ends here: ranks that wait in its
    operations get `weft.Aborted`. The store is not used.

    Args:
        group: The process group, or the default one.
        timeout: The time that all of it may take; the group's timeout by default.

    Returns:
        The new process group.

    Raises:
        weft.ArgumentError: The group's backend for the CPU is not weft.
        weft.Error: See `weft.Group.shrink`.

    Examples:
        >>> smaller = weft.torch.shrink()  # on every surviving rank
        >>> dist.all_reduce(tensor, group=smaller)
    """
    parent = distributed_c10d._get_default_group() if group is None else group
    backend = backend_of(parent)
    # Each group is shrunk once, so no other group has this name.
    name = f"{parent.group_name}:survivors"
    old = backend.weft_group
    backend.weft_operations.abort_operations("a rank shrinks the group")
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
