"""The process's endpoint: the pool and the connections that its groups share."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from typing import Any

from weft import _weft
from weft.config import Settings, flight_directory
from weft.errors import ConfigError
from weft.settings import EndpointOptions

__all__ = ["Endpoint", "options_of", "pool_bytes", "shared"]

Endpoint = _weft.Endpoint

_lock = threading.Lock()
_shared: dict[tuple[object, ...], Endpoint] = {}


def shared(settings: Settings, rank: int, route_to: str | None = None) -> Endpoint:
    """Returns this process's endpoint with these settings. It stays until the process ends.

    Ranks that are threads of one process (`loopback`) have one each: an endpoint is one rank.

    Args:
        settings: The settings of the endpoint.
        rank: Its rank.
        route_to: The rendezvous as `host:port`; TCP listens on the interface that routes there.
    """
    options = options_of(settings) | _flight_options(settings)
    # The process is part of the key: a forked child must not use its parent's connections.
    thread = rank if settings.transport == "loopback" else None
    key = (os.getpid(), thread, route_to, *options.values())
    with _lock:
        if not _shared:
            atexit.register(_close_all)
        if key not in _shared:
            _shared[key] = Endpoint(route_to=route_to, **options)
        return _shared[key]


def pool_bytes() -> tuple[int, int, int]:
    """Bytes of this process's pools: in use, in quarantine, and the bound.

    The quarantine has memory that ranks may still write which have not left a closed group.
    """
    pools = [endpoint.pool_bytes() for endpoint in _own()]
    used, quarantined, bound = (sum(part) for part in zip(*pools, strict=True)) if pools else (0, 0, 0)
    return used, quarantined, bound


def _own() -> list[Endpoint]:
    """The endpoints of this process, not of the process that it was forked from."""
    return [endpoint for key, endpoint in list(_shared.items()) if key[0] == os.getpid()]


def options_of(settings: Settings) -> dict[str, Any]:
    """The arguments of an endpoint with these settings, except its flight record."""
    return settings.of(EndpointOptions) | {"encrypt": _encryption(settings)}


def _encryption(settings: Settings) -> str:
    """The value for the native layer: `0`, `1`, or the name of a cipher."""
    asked = settings.encrypt
    return asked if isinstance(asked, str) else str(int(asked))


def _flight_options(settings: Settings) -> dict[str, object]:
    directory, name = flight_directory(settings), settings.flight_signal
    if name and directory is None:
        raise ConfigError(f"flight_signal={name!r} with flight_dir='none': name a directory to write to")
    return {"flight_dir": directory, "flight_signal": signal.Signals[name] if name else None}


def _close_all() -> None:
    """Completes issued operations, unless the program ends by an exception, and leaves."""
    # Set where a traceback was printed; in an interactive session the program continues.
    failed = hasattr(sys, "last_value") and not hasattr(sys, "ps1")
    for endpoint in _own():
        try:
            if not failed:
                endpoint.finish()
        finally:
            endpoint.close()
