"""The process's endpoint: the pool and the connections that its groups share."""

from __future__ import annotations

import atexit
import os
import threading

from weft import _weft
from weft.config import EndpointOptions, Settings

__all__ = ["Endpoint", "shared"]

Endpoint = _weft.Endpoint

_lock = threading.Lock()
_shared: dict[tuple[object, ...], Endpoint] = {}


def shared(settings: Settings, rank: int, route_to: str | None = None) -> Endpoint:
    """This process's endpoint with these settings. It stays until the process ends.

    Ranks that are threads of one process (`loopback`) have one each: an endpoint is one rank.

    Args:
        settings: What it is made from.
        rank: Whose it is.
        route_to: The rendezvous as `host:port`; TCP listens on the interface that routes there.
    """
    options = settings.of(EndpointOptions)
    # The process is part of the key: a forked child must not use its parent's connections.
    thread = rank if settings.transport == "loopback" else None
    key = (os.getpid(), thread, route_to, *options.values())
    with _lock:
        if not _shared:
            atexit.register(_close_all)
        if key not in _shared:
            _shared[key] = Endpoint(route_to=route_to, **options)
        return _shared[key]


def _close_all() -> None:
    for key, endpoint in list(_shared.items()):
        if key[0] == os.getpid():
            endpoint.close()
