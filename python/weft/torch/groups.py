"""Rendezvous of the members of a process group of torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

import weft
from weft import config, endpoints, selection

if TYPE_CHECKING:
    from weft import _weft

__all__ = ["open_group"]


def open_group(options: Any) -> _weft.Group:
    """A group of the members that torch names in its `_DistributedBackendOptions`.

    Every member calls this.
    """
    settings = config.load()
    # Without a list it is the group of all ranks, for which everything that is configured is meant.
    some = selection.of_some_ranks(settings, options.group_size) if options.global_ranks_in_group else {}
    group = weft.init(
        options.group_rank,
        options.group_size,
        store=options.store,
        timeout=options.timeout.total_seconds(),
        name=f"torch {options.group_id}.{_generation(options)}",  # unlike any other's
        global_ranks=options.global_ranks_in_group or None,
        endpoint=endpoints.shared(settings, options.group_rank, _rendezvous(options.store)),
        **some,
    )
    return group.native


def _generation(options: Any) -> int:
    """How often these members have made a group of this name before.

    torch reuses names after `destroy_process_group`, and torchrun's store keeps every key for as
    long as the job runs, so the keys of an earlier group would be taken for those of the new one.
    """
    ranks = ",".join(map(str, options.global_ranks_in_group)) or "all"
    ticket = options.store.add(f"weft tickets of {ranks}", 1)
    return int(ticket - 1) // int(options.group_size)


def _rendezvous(store: Store) -> str | None:
    """Where the job meets, as `host:port`.

    The network interface that routes there is the one to use.
    """
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return f"{store.host}:{store.port}" if isinstance(store, TCPStore) else None
