"""Makes the first group of a process."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

from weft import _weft, choice, config, endpoints, stores
from weft.errors import ConfigError
from weft.group import Group
from weft.tuning import probe as probing

__all__ = ["init"]

_meetings = itertools.count()


def init(
    rank: int | None = None,
    world_size: int | None = None,
    *,
    store: Any | None = None,
    address: str | None = None,
    timeout: float | None = None,
    transport: str | None = None,
    interface: str | None = None,
    pool_bytes: int | str | None = None,
    peer_timeout: float | None = None,
    algorithm: Mapping[str, str] | str | None = None,
    schedules: Mapping[str, choice.OwnSchedule] | str | None = None,
    reproducible: bool | None = None,
    profile: str | os.PathLike[str] | None = None,
    probe: bool | None = None,
    topology: Sequence[Sequence[int]] | None = None,
    domains: Sequence[Sequence[int]] | str | None = None,
    name: str = "world",
    endpoint: endpoints.Endpoint | None = None,
    cancel: _weft.Cancellation | None = None,
) -> Group:
    """Meets the other ranks of the job, and makes a group of all of them.

    Every rank calls this, and as often as the others. Without `rank`, `world_size`, `address` and `store`, the place
    in the job is what the launcher has set (torchrun, mpirun, srun ...); without a launcher, the group has one rank.
    The other arguments are settings: see docs/configuration.md for their environment variables, meaning and defaults.

    Args:
        rank: This process's number, from 0.
        world_size: The number of processes.
        store: A `torch.distributed` store, or an object with `set(key, value)` and `get(key, timeout)`. Every rank
            passes one that reaches the same keys, not used for an earlier `init` under the same name.
        address: Where to meet without a store, as `host:port`; rank 0 listens there.
        timeout: Seconds that the meeting, and later each operation, may take.
        transport: `auto`, `shm` or `tcp`.
        interface: The network interface for TCP.
        pool_bytes: Upper bound of the memory pool.
        peer_timeout: Seconds after which a host that is silent counts as lost.
        algorithm: For collectives, by name: the only algorithm to use, such as `{"all-reduce": "ring"}`.
        schedules: Schedules of your own, by the names that calls, `algorithm` and profiles may give them: a
            `weft.schedule.Schedule`, or the path of a file.
        reproducible: Whether the bits of sums must not depend on algorithm, tile size and placement.
        profile: What algorithms are chosen by: `auto`, `none`, or the path of a profile, which rank 0 reads.
        probe: Whether to measure for up to 50 ms, and to choose by that, where there is no profile.
        topology: Levels of units, innermost first: for each level the unit of every rank.
        domains: Levels of domains inside hosts, innermost first: for each level the domain of every rank; or `auto`,
            or `none`.
        name: What errors call the group.
        endpoint: An endpoint of one's own, in place of the one that the process's groups share.
        cancel: Ends the meeting from another thread.
    """
    place = config.place(rank, world_size, address, meets=store is None)
    settings = config.load(
        {
            "timeout": timeout,
            "transport": transport,
            "interface": interface,
            "pool_bytes": pool_bytes,
            "peer_timeout": peer_timeout,
            "algorithm": algorithm,
            "schedules": schedules,
            "reproducible": reproducible,
            "profile": profile,
            "probe": probe,
            "topology": topology,
            "domains": domains,
        }
    )
    if store is not None and place.launcher == "none":
        raise ConfigError("store= without rank= and world_size=: give both, or start the process with a launcher")
    cancel = cancel or _weft.Cancellation()
    route_to = f"{place.host}:{place.port}" if place.host else None
    endpoint = endpoint or endpoints.shared(settings, route_to)
    native_store: Any
    if store is not None:
        native_store = stores.adapt(store)
    elif place.world_size == 1:
        native_store = _weft.MemoryStore()
    else:
        native_store = stores.of_place(place, settings.timeout, cancel)
    profiles = choice.profiles(settings.profile, place.world_size) if place.rank == 0 else []
    native = _weft.Group.create(
        endpoint=endpoint,
        store=native_store,
        rank=place.rank,
        size=place.world_size,
        timeout=settings.timeout,
        name=name,
        prefix=f"{name}/{next(_meetings)}" if store is None else name,
        cancel=cancel,
        algorithms=settings.algorithm,
        reproducible=settings.reproducible,
        levels=settings.topology,
        schedules=choice.schedules(settings.schedules),
        profiles=profiles,
        domains=settings.declared_domains,
    )
    group = Group(native)
    if not settings.probe or group.size == 1:
        return group
    return probing.probed(group, has_profile=choice.suits(profiles, group.hosts, group.domains))
