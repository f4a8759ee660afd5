"""weft: collective communication for data-parallel training.

    import numpy as np
    import weft

    group = weft.init()
    x = np.full(5, group.rank, np.float32)    group.all_reduce(x)

`weft.torch` has what PyTorch uses. Names and modules are loaded when they are first used, so that
`weft --help` waits for none of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what type checkers and editors read; the table below says the same
    from weft._weft import Cancellation, Endpoint, MemoryStore, TcpStore, __version__
    from weft.errors import (
        Aborted,
        ArgumentError,
        AuthError,
        ConfigError,
        Desync,
        DeviceError,
        Error,
        InternalError,
        PeerLost,
        ScheduleError,
        StillRunning,
        Timeout,
        UnsupportedError,
    )
    from weft.flight import flight_record
    from weft.group import Group
    from weft.ops import PremulSum
    from weft.registration import Registration
    from weft.symmetric import SymmetricArray
    from weft.work import Work
    from weft.world import init, rejoin

__all__ = [
    "Aborted",
    "ArgumentError",
    "AuthError",
    "Cancellation",
    "ConfigError",
    "Desync",
    "DeviceError",
    "Endpoint",
    "Error",
    "Group",
    "InternalError",
    "MemoryStore",
    "PeerLost",
    "PremulSum",
    "Registration",
    "ScheduleError",
    "StillRunning",
    "SymmetricArray",
    "TcpStore",
    "Timeout",
    "UnsupportedError",
    "Work",
    "__version__",
    "flight_record",
    "init",
    "rejoin",
]

_HOMES = {
    "_weft": ("Cancellation", "Endpoint", "MemoryStore", "TcpStore", "__version__"),
    "errors": (
        *("Aborted", "ArgumentError", "AuthError", "ConfigError", "Desync", "DeviceError", "Error", "InternalError"),
        *("PeerLost", "ScheduleError", "StillRunning", "Timeout", "UnsupportedError"),
    ),
    "flight": ("flight_record",),
    "group": ("Group",),
    "ops": ("PremulSum",),
    "registration": ("Registration",),
    "symmetric": ("SymmetricArray",),
    "work": ("Work",),
    "world": ("init", "rejoin"),
}
"""Modules, and which names of the package each has."""
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
_MODULES = (
    *("config", "drawing", "planning", "reports", "schedule", "simulation", "torch", "tracing", "tuning"),
    *_HOMES,
)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"weft.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"weft.{_HOME_OF[name]}"), name)
    globals()[name] = value  # the next use does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF, *_MODULES})
