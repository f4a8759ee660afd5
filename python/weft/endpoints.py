"""The process's endpoint: the pool and the connections that its groups share."""

from __future__ import annotations

import atexit
import os
import threading

from weft import _weft
from weft.config import Settings

__all__ = ["Endpoint", "create", "shared"]

Endpoint = _weft.Endpoint

_Key = tuple[int, str, str | None, str | None, int, float]
_lock = threading.Lock()
_shared: dict[_Key, Endpoint] = {}


def create(settings: Settings, route_to: str | None = None) -> Endpoint:
    """A new endpoint."""
    return Endpoint(
        transport=settings.transport,
        interface=settings.interface,
        route_to=route_to,
        pool_bytes=settings.pool_bytes,
        peer_timeout=settings.peer_timeout,
    )


def shared(settings: Settings, route_to: str | None = None) -> Endpoint:
    """This process's endpoint with these settings. It stays until the process ends.

    Args:
        settings: What it is made from.
        route_to: The rendezvous as `host:port`; TCP listens on the interface that routes there.
    """
    # The process is part of the key: a forked child must not use its parent's connections.
    key = (
        os.getpid(),
        settings.transport,
        settings.interface,
        route_to,
        settings.pool_bytes,
        settings.peer_timeout,
    )
    with _lock:
        if not _shared:
            atexit.register(_close_all)
        if key not in _shared:
            _shared[key] = create(settings, route_to)
        return _shared[key]


def _close_all() -> None:
    for key, endpoint in list(_shared.items()):
        if key[0] == os.getpid():
            endpoint.close()
