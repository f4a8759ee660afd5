"""weft: collective communication for data-parallel training.

    import numpy as np
    import weft

    group = weft.init()
    x = np.full(5, group.rank, np.float32)    group.all_reduce(x)

`weft.torch` is the interface for PyTorch. Names and modules are loaded on first use, so that
`weft --help` does not wait for them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # read by type checkers and editors; the table below has the same names
    from weft._weft import Cancellation, Endpoint, MemoryStore, TcpStore, __version__
    from weft.api.group import Group
    from weft.api.registration import Registration
    from weft.api.symmetric import SymmetricArray
    from weft.api.work import Work
    from weft.datatypes.ops import PremulSum
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
    from weft.observability.flight import flight_record
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
    "observability.flight": ("flight_record",),
    "api.group": ("Group",),
    "datatypes.ops": ("PremulSum",),
    "api.registration": ("Registration",),
    "api.symmetric": ("SymmetricArray",),
    "api.work": ("Work",),
    "world": ("init", "rejoin"),
}
"""Modules, and the names of the package that each defines."""
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
_MODULES = (
    *("_weft", "config", "drawing", "errors", "planning", "schedule", "simulation", "torch", "tracing", "tuning"),
    "world",
)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"weft.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"weft.{_HOME_OF[name]}"), name)
    globals()[name] = value  # later uses do not call __getattr__
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF, *_MODULES})
