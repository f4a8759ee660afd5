"""Rendezvous of the members of a process group of torch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import weft
from weft import config, endpoints, selection
from weft.meetings import agree_on_number
from weft.stores import TorchStore, rendezvous
from weft.world import stay_away

if TYPE_CHECKING:
    from weft import _weft

__all__ = ["already_made", "open_group"]

_made: ContextVar[_weft.Group | None] = ContextVar("weft group for torch", default=None)


@contextlib.contextmanager
def already_made(group: _weft.Group) -> Iterator[None]:
    """Lets process groups that torch makes in the block have this group: nobody meets anew."""
    token = _made.set(group)
    try:
        yield
    finally:
        _made.reset(token)


def open_group(options: Any) -> _weft.Group:
    """A group of the members that torch names in its `_DistributedBackendOptions`.

    Every member calls this.
    """
    made = _made.get()
    if made is not None:
        return made
    name = f"torch {options.group_id}.{_number(options)}"  # unlike any other's
    try:
        settings = config.load()
        # Without a list it is the group of all ranks, for which everything that is configured is
        # meant.
        some = selection.of_some_ranks(settings, options.group_size) if options.global_ranks_in_group else {}
        endpoint = endpoints.shared(settings, options.group_rank, rendezvous(options.store))
    except Exception as error:
        stay_away(options.store, name, options.group_rank, options.group_size, error)
        raise
    group = weft.init(
        options.group_rank,
        options.group_size,
        store=options.store,
        timeout=options.timeout.total_seconds(),
        name=name,
        global_ranks=options.global_ranks_in_group or None,
        endpoint=endpoint,
        **some,
    )
    return group.native


def _number(options: Any) -> int:
    """How many meetings of these members came before, under the name that torch gave the group.

    torch reuses names after `destroy_process_group`, and torchrun's store keeps every key for as
    long as the job runs, so the keys of an earlier group would be taken for those of the new one.
    """
    ranks = ",".join(map(str, options.global_ranks_in_group)) or "all"
    numbers = TorchStore(options.store, f"weft meetings of {ranks}")
    timeout = options.timeout.total_seconds()
    return agree_on_number(numbers, options.group_rank, options.group_size, timeout) - 1
