"""weft: collective communication for data-parallel training.

    import numpy as np
    import weft

    group = weft.init()
    x = np.full(5, group.rank, np.float32)    group.all_reduce(x)

`weft.torch` has what PyTorch uses; the other modules are loaded when they are used.
"""

from __future__ import annotations

import importlib
from typing import Any

from weft._weft import Cancellation, Endpoint, MemoryStore, TcpStore, __version__
from weft.errors import (
    Aborted,
    ArgumentError,
    AuthError,
    ConfigError,
    Desync,
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
    "Endpoint",
    "Error",
    "Group",
    "InternalError",
    "MemoryStore",
    "PeerLost",
    "PremulSum",
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

# Loaded when first used: who communicates needs none of them.
_LAZY = ("bench", "drawing", "planning", "schedule", "simulation", "torch", "tracing", "tuning")


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return importlib.import_module(f"weft.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
