"""Settings of a run: placement of ranks, trained networks and duration."""

from __future__ import annotations

from dataclasses import dataclass

from benches.gate.networks import NETWORKS


@dataclass(frozen=True)
class GateSetting:
    """Where the ranks are."""

    name: str
    ranks: int
    hosts: int = 1
    gbps: float | None = None


SETTINGS = (
    GateSetting("1 host", 2),
    GateSetting("1 host", 4),
    GateSetting("4 hosts, 1 Gbit/s", 4, hosts=4, gbps=1.0),
)


@dataclass(frozen=True)
class GateEffort:
    """The time for which every network is trained in every setting."""

    seconds: float
    """It takes no longer, unless that would be fewer rounds than the fewest."""
    rounds_min: int
    """The 95 % interval of a median needs 6; of 9, it leaves out the largest and the smallest."""
    block_seconds: float
    """The approximate duration of a block of steps; it has at least one."""
    networks: tuple[str, ...] = tuple(NETWORKS)


FULL = GateEffort(seconds=36.0, rounds_min=9, block_seconds=0.5)
QUICK = GateEffort(seconds=4.0, rounds_min=2, block_seconds=0.2)
