"""Creation of weft's group for a process group of torch.

[Note: Groups without a meeting] The ranks of the default group have met, and know everything of
each other that a group of some of them needs. So such a group is split off from it: its members
derive its identity from the call, as all of them make groups with these members under this name in
one order, and wait for each other over their links. The store is not used: a meeting there takes
several turns of all of its ranks, and a pause of each rank that looks too early. A broken default
group can be split too, as ranks are notified of a failure at different times.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from weft import config, selection
from weft.bootstrap import endpoints
from weft.bootstrap.meetings import agree_on_number
from weft.bootstrap.stores import TorchStore, rendezvous
from weft.errors import ArgumentError, Error
from weft.observability import reports
from weft.torch.arguments import seconds
from weft.torch.lookup import backend_of
from weft.world import init, stay_away

if TYPE_CHECKING:
    from weft import _weft

__all__ = ["already_made", "open_group"]

_made: ContextVar[_weft.Group | None] = ContextVar("weft group for torch", default=None)
_endpoint_options: weakref.WeakKeyDictionary[_weft.Group, dict[str, Any]] = weakref.WeakKeyDictionary()
"""The options of the endpoints of default groups."""


@contextlib.contextmanager
def already_made(group: _weft.Group) -> Iterator[None]:
    """Makes process groups that torch makes in the block use this group, without a meeting."""
    token = _made.set(group)
    try:
        yield
    finally:
        _made.reset(token)


def open_group(options: Any, chosen: Mapping[str, Any] | None = None) -> _weft.Group:
    """A group of the members that torch names in its `_DistributedBackendOptions`.

    Every member calls this, with the settings that the program has chosen for this group.
    """
    chosen = chosen or {}
    made = _made.get()
    if made is not None:
        return made
    split = _split_off(options, chosen)
    if split is not None:
        return split
    name = f"torch {options.group_id}.{_number(options)}"  # no other group has it
    try:
        settings = config.load()
        # Without a list it is the group of all ranks, which all settings are meant for.
        some = selection.of_some_ranks(settings, options.group_size) if options.global_ranks_in_group else {}
        endpoint = endpoints.shared(settings, options.group_rank, rendezvous(options.store))
    except Exception as error:
        stay_away(options.store, name, options.group_rank, options.group_size, error)
        raise
    group = init(
        options.group_rank,
        options.group_size,
        store=options.store,
        timeout=options.timeout.total_seconds(),
        name=name,
        global_ranks=options.global_ranks_in_group or None,
        endpoint=endpoint,
        **{**some, **chosen},
    )
    if not options.global_ranks_in_group:
        _endpoint_options[group.native] = endpoints.options_of(settings)
    return group.native


def _split_off(options: Any, chosen: Mapping[str, Any]) -> _weft.Group | None:
    """Splits off a group of some of the default group's ranks, when its neighbours have it too.

    None without such a default group, on all members: see [Note: Groups without a meeting]. Groups
    that are probed meet, for rank 0's profiles, and so do those for which the environment now has
    another endpoint. Settings about places of ranks and profiles are meant for the default group.
    """
    settings = config.load() if options.global_ranks_in_group else None
    if settings is None or settings.probe:
        return None
    try:
        parent: _weft.Group = backend_of(None).weft_group
    except (ArgumentError, ValueError):  # it has another backend, or does not exist
        return None
    if _endpoint_options.get(parent) != endpoints.options_of(settings):  # another transport, for instance
        return None
    some = selection.of_some_ranks(settings, options.group_size)
    name = f"{parent.name}/{options.group_id}"
    members = list(options.global_ranks_in_group)
    asked = {"reproducible": settings.reproducible, "wire": settings.wire, **some, **chosen}
    try:
        group = parent.split(
            members,
            name,
            global_ranks=members,
            waits=True,
            timeout=seconds(options.timeout),
            **selection.native_options(asked, len(members)),
        )
    except Error as error:
        reports.failed(name, error)
        raise
    assert group is not None, "torch calls this on members only"
    reports.made(group)
    return group


def _number(options: Any) -> int:
    """How many meetings of these members came before, under the name that torch gave the group.

    torch reuses names after `destroy_process_group`, and torchrun's store keeps every key as long
    as the job runs. So the keys of an earlier group would be mistaken for those of the new one.
    """
    ranks = ",".join(map(str, options.global_ranks_in_group)) or "all"
    numbers = TorchStore(options.store, f"weft meetings of {ranks}")
    timeout = options.timeout.total_seconds()
    return agree_on_number(numbers, options.group_rank, options.group_size, timeout) - 1
