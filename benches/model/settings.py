"""Where the model is held against measurements."""

from __future__ import annotations

import dataclasses

__all__ = ["SETTINGS", "Setting"]


@dataclasses.dataclass(frozen=True)
class Setting:
    """One arrangement of ranks."""

    name: str
    ranks: int
    hosts: int = 1
    gbps: float | None = None


SETTINGS = (
    Setting("shm-2", ranks=2),
    Setting("shm-4", ranks=4),
    Setting("hosts-4-gbps-0.1", ranks=4, hosts=4, gbps=0.1),
    Setting("hosts-4-gbps-1", ranks=4, hosts=4, gbps=1.0),
    Setting("hosts-4-gbps-2.5", ranks=4, hosts=4, gbps=2.5),
)
