"""Configurations of ranks and hosts for the comparison of the model with measurements."""

from __future__ import annotations

import dataclasses

__all__ = ["SETTINGS", "ModelSetting"]


@dataclasses.dataclass(frozen=True)
class ModelSetting:
    """One arrangement of ranks."""

    name: str
    ranks: int
    hosts: int = 1
    gbps: float | None = None


SETTINGS = (
    ModelSetting("shm-2", ranks=2),
    ModelSetting("shm-4", ranks=4),
    ModelSetting("hosts-4-gbps-0.1", ranks=4, hosts=4, gbps=0.1),
    ModelSetting("hosts-4-gbps-1", ranks=4, hosts=4, gbps=1.0),
    ModelSetting("hosts-4-gbps-2.5", ranks=4, hosts=4, gbps=2.5),
    ModelSetting("hosts-2-of-2-gbps-1", ranks=4, hosts=2, gbps=1.0),
    ModelSetting("hosts-2-of-4-gbps-1", ranks=8, hosts=2, gbps=1.0),
)
