"""Creation of the first group of a process."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Unpack

from weft import _weft, config, selection
from weft.api.group import Group
from weft.bootstrap import endpoints, stores
from weft.config import EndpointOptions, GroupOptions, Options, Settings
from weft.errors import ConfigError, Error
from weft.launchers import JobPosition
from weft.observability import reports
from weft.output.logs import LOGGER

__all__ = ["init", "rejoin", "stay_away"]

_REPORT_TIMEOUT_S = 5.0
"""How long a rank that fails before it meets the others looks for the store, to say so."""

_meetings: defaultdict[int | None, itertools.count[int]] = defaultdict(itertools.count)
"""How often this process has met others without a store; threads that are ranks (`loopback`) count
for themselves.
"""


def init(
    rank: int | None = None,
    world_size: int | None = None,
    *,
    store: Any | None = None,
    address: str | None = None,
    name: str = "world",
    global_ranks: Sequence[int] | None = None,
    endpoint: endpoints.Endpoint | None = None,
    cancel: _weft.Cancellation | None = None,
    **options: Unpack[Options],
) -> Group:
    """Meets the other ranks of the job, and makes a group of all of them.

    Every rank calls this, and as often as the others. Without `rank`, `world_size`, `address` and
    `store`, the place in the job is what the launcher has set (torchrun, mpirun, srun ...); without
    a launcher, the group has one rank. The documentation's page "Configuration" has the options,
    their environment variables and defaults.

    Args:
        rank: This process's number, from 0.
        world_size: The number of processes.
        store: A `torch.distributed` store, or an object with `set(key, value)` and
            `get(key, timeout)`. Every rank passes one that reaches the same keys, not used for an
            earlier `init` under the same name.
        address: Where to meet without a store, as `host:port`; rank 0 listens there.
        name: What errors call the group.
        global_ranks: The ranks' numbers in the world, where the group is of some of its ranks;
            errors give them.
        endpoint: A separate endpoint, in place of the one that the process's groups share.
        cancel: Ends the meeting from another thread.
        options: See `weft.config.Options`.
    """
    place = config.place(rank, world_size, address, meets=store is None)
    cancel = cancel or _weft.Cancellation()
    if store is not None and place.launcher == "none":
        raise ConfigError("store= without rank= and world_size=: give both, or start the process with a launcher")
    try:
        if global_ranks is not None and len(global_ranks) != place.world_size:
            raise ConfigError(
                f"global_ranks={list(global_ranks)}: expected a number for each of {place.world_size} ranks"
            )
        settings = config.load(options)
    except Exception as error:
        _report_absence(place, store, name, options, error)
        raise
    native_store, meeting = _meeting_place(place, store, name, settings, cancel)
    try:
        # After the store, which waits for the rendezvous' name if that is known late.
        route_to = f"{place.host}:{place.port}" if place.host else stores.rendezvous(store)
        compared = settings.compared()
        if endpoint is None:
            endpoint = endpoints.shared(settings, place.rank, route_to)
        else:
            compared = {name: value for name, value in compared.items() if name not in EndpointOptions.__annotations__}
        reports.begin(settings, place.rank if global_ranks is None else global_ranks[place.rank], place.local_rank)
        asked = settings.of(GroupOptions)
        if place.rank != 0:
            asked["profile"] = "none"  # every rank is given rank 0's
        group_options = selection.native_options(asked, place.world_size)
    except Exception as error:
        if place.world_size > 1:
            stay_away(native_store, meeting, place.rank, place.world_size, error)
        raise
    try:
        native = _weft.Group.create(
            endpoint=endpoint,
            store=native_store,
            rank=place.rank,
            size=place.world_size,
            name=name,
            prefix=meeting,
            cancel=cancel,
            global_ranks=None if global_ranks is None else list(global_ranks),
            job=config.job_identity(settings, place.world_size),
            settings=compared,
            **group_options,
        )
    except Error as error:
        reports.failed(name, error)
        raise
    reports.made(native)
    group = Group(native)
    if not settings.probe or group.size == 1:
        return group
    from weft.tuning import probe

    return probe.probed(group, has_profile=selection.suits(group_options["profiles"], group.hosts, group.domains))


def _meeting_place(
    place: JobPosition, store: Any | None, name: str, settings: Settings, cancel: _weft.Cancellation
) -> tuple[Any, str]:
    """The store where the ranks meet, and under which of its keys."""
    if store is not None:
        return stores.adapt(store), name
    if place.world_size == 1:
        return _weft.MemoryStore(), name
    native_store = stores.of_place(place, settings, cancel)
    # Counted only now: a rank that does not reach the store has come to no meeting.
    number = next(_meetings[place.rank if settings.transport == "loopback" else None])
    return native_store, f"{name}/{number}"


def _report_absence(place: JobPosition, store: Any | None, name: str, options: Options, error: Exception) -> None:
    """As `stay_away`, at the store where this place's ranks meet."""
    if place.world_size == 1:
        return
    settings = config.load_what_is_good(options)
    settings.timeout = min(settings.timeout, _REPORT_TIMEOUT_S)
    try:
        native_store, meeting = _meeting_place(place, store, name, settings, _weft.Cancellation())
    except Error as unreachable:
        LOGGER.warning("the other ranks cannot be told that this one fails: %s", unreachable)
    else:
        stay_away(native_store, meeting, place.rank, place.world_size, error)


def stay_away(store: Any, meeting: str, rank: int, world_size: int, error: Exception) -> None:
    """Leaves at the store why this rank does not come to the meeting, for those who wait for it."""
    _weft.fail_meeting(stores.adapt(store), meeting, rank, world_size, str(error), _weft.Cancellation())


def rejoin(rank: int, world_size: int, *, address: str, epoch: int, **options: Unpack[Options]) -> Group:
    """Meets the ranks of the job's next epoch, and makes a group of them: old ones and new ones.

    A process that takes a lost one's place calls this in place of `init`. The others call it when
    they are ready to let it in, such as between two steps, with the ranks that `Group.shrink` has
    left them; the new ones have those behind. Who starts the new processes tells all of them the
    number of ranks, the address and the epoch. All the state of training is theirs to give: the new
    ranks have none.

    Args:
        rank: This process's number in the new group, from 0.
        world_size: The number of ranks that meet.
        address: Where to meet, as `host:port`; rank 0 listens there from the first epoch with this
            address on. It needs an address of its own host: another one if another rank was 0.
        epoch: Unlike that of any other meeting at this address, and the same on all ranks.
        options: See `weft.config.Options`: as the others have them.

    Raises:
        weft.Timeout: Ranks are missing after the option `timeout`; the error names them.
    """
    place = config.place(rank, world_size, address)
    store = stores.of_place(place, config.load(options), _weft.Cancellation())
    return init(rank, world_size, store=store, name=f"epoch {epoch}", **options)
