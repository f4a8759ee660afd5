"""Creation of the first group of a process."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Unpack

from weft import _weft, config, selection
from weft.api.group import Group
from weft.bootstrap import endpoints, stores
from weft.config import Settings
from weft.errors import ConfigError, Error
from weft.launchers import JobPosition
from weft.observability import reports
from weft.output.logs import LOGGER
from weft.settings import EndpointOptions, GroupOptions, Options

__all__ = ["init", "rejoin", "stay_away"]

_REPORT_TIMEOUT_S = 5.0
"""Seconds in which a rank that fails before the meeting looks for the store, to report it."""

_meetings: defaultdict[int | None, itertools.count[int]] = defaultdict(itertools.count)
"""How many meetings without a store this process has had; threads that are ranks (`loopback`) count
separately.
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

    Every rank calls this the same number of times. Without `rank`, `world_size`, `address` and
    `store`, the launcher's variables give the place in the job (torchrun, mpirun, srun ...);
    without a launcher, the group has one rank. The documentation's page "Configuration" has the
    options, their environment variables and defaults.

    Args:
        rank: This process's rank, from 0.
        world_size: The number of processes.
        store: A `torch.distributed` store, or an object with `set(key, value)` and
            `get(key, timeout)`. Every rank passes one that reaches the same keys, not used for an
            earlier `init` under the same name.
        address: The meeting point without a store, as `host:port`; rank 0 listens there.
        name: The name of the group in errors.
        global_ranks: The ranks' numbers in the world, for errors, if the group has only some of its
            ranks.
        endpoint: A separate endpoint, in place of the one that the process's groups share.
        cancel: Ends the meeting from another thread.
        options: See `weft.settings.Options`.

    Returns:
        The group of all ranks.

    Raises:
        weft.ConfigError: A setting or the place in the job is missing, wrong, or differs
            between ranks.
        weft.AuthError: A process at the meeting point does not belong to the job.
        weft.Timeout: Ranks are missing after the option `timeout`; the error names them.
        weft.Aborted: Another rank failed before it met the others, or `cancel` was called.

    Examples:
        >>> group = weft.init()  # in each of 4 processes that torchrun has started
        >>> group.rank, group.size  # (0, 4) in the first
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
        # After the store, which waits for a name of the rendezvous that becomes known late.
        route_to = f"{place.host}:{place.port}" if place.host else stores.rendezvous(store)
        compared = settings.compared()
        if endpoint is None:
            endpoint = endpoints.shared(settings, place.rank, route_to)
        else:
            compared = {name: value for name, value in compared.items() if name not in EndpointOptions.__annotations__}
        reports.begin(settings, place.rank if global_ranks is None else global_ranks[place.rank], place.local_rank)
        asked = settings.of(GroupOptions)
        if place.rank != 0:
            asked["profile"] = "none"  # every rank receives rank 0's
        group_options = selection.native_options(asked, place.world_size)
    except Exception as error:
        if place.world_size > 1:
            stay_away(native_store, meeting, place.rank, place.world_size, error)
        if isinstance(error, OSError):  # a module is loaded only here, and no descriptor is left for it
            raise ConfigError(f"this process cannot start: {error}. Raise its limits (ulimit -n)") from error
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
    """The store where the ranks meet, and the prefix of their keys."""
    if store is not None:
        return stores.adapt(store), name
    if place.world_size == 1:
        return _weft.MemoryStore(), name
    native_store = stores.of_place(place, settings, cancel)
    # Counted only now: a rank that does not reach the store has taken part in no meeting.
    number = next(_meetings[place.rank if settings.transport == "loopback" else None])
    return native_store, f"{name}/{number}"


def _report_absence(place: JobPosition, store: Any | None, name: str, options: Options, error: Exception) -> None:
    """Like `stay_away`, at the store where this place's ranks meet."""
    if place.world_size == 1:
        return
    settings = config.load_what_is_good(options)
    settings.timeout = min(settings.timeout, _REPORT_TIMEOUT_S)
    try:
        native_store, meeting = _meeting_place(place, store, name, settings, _weft.Cancellation())
    except Error as unreachable:
        LOGGER.warning("this rank fails and cannot notify the other ranks: %s", unreachable)
    else:
        stay_away(native_store, meeting, place.rank, place.world_size, error)


def stay_away(store: Any, meeting: str, rank: int, world_size: int, error: Exception) -> None:
    """Leaves at the store the reason why this rank does not meet the others, who wait for it."""
    _weft.fail_meeting(stores.adapt(store), meeting, rank, world_size, str(error), _weft.Cancellation())


def rejoin(rank: int, world_size: int, *, address: str, epoch: int, **options: Unpack[Options]) -> Group:
    """Meets the ranks of the job's next epoch, old and new ones, and makes a group of them.

    A process that replaces a lost one calls this instead of `init`. The surviving ranks call it
    when they are ready for it, for instance between two steps, with the ranks that `Group.shrink`
    has given them; new ranks have the following numbers. The program that starts the new processes
    passes all ranks the number of ranks, the address and the epoch. The surviving ranks must send
    the state of training to the new ones, which have none.

    Args:
        rank: This process's rank in the new group, from 0.
        world_size: The number of ranks that meet.
        address: The meeting point, as `host:port`; rank 0 listens there from the first epoch with
            this address on. It must be an address of rank 0's host, so another rank 0 needs another
            address.
        epoch: A number that no other meeting at this address has, the same on all ranks.
        options: See `weft.settings.Options`; the same as the other ranks'.

    Returns:
        The new group.

    Raises:
        weft.Timeout: Ranks are missing after the option `timeout`; the error names them.
        weft.ConfigError: A setting is wrong, or differs between ranks.
    """
    place = config.place(rank, world_size, address)
    store = stores.of_place(place, config.load(options), _weft.Cancellation())
    return init(rank, world_size, store=store, name=f"epoch {epoch}", **options)
