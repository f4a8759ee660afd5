"""weft: collective communication for data-parallel training.

import numpy as np
import weft

group = weft.init()
x = np.full(5, group.rank, np.float32)
group.all_reduce(x)
"""

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
from weft.group import Group
from weft.ops import PremulSum
from weft.work import Work
from weft.world import init

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
    "TcpStore",
    "Timeout",
    "UnsupportedError",
    "Work",
    "__version__",
    "init",
]
