"""Machine description of the simulator."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from weft.call_shape import CallShape

__all__ = ["Machine", "Straggler", "Switch"]

BYTES_PER_GBIT = 1e9 / 8


@dataclasses.dataclass(frozen=True)
class Switch:
    """A level of switches above the hosts."""

    hosts: int
    """The number of hosts below a switch."""
    oversubscription: float
    """The rate of those hosts together, divided by the rate of the switch upwards."""
    latency_s: float = 0.0
    """Additional latency of a message between hosts below different switches."""


@dataclasses.dataclass(frozen=True)
class Straggler:
    """A rank that is slow, or starts late."""

    rank: int
    slowdown: float = 1.0
    """The factor by which everything on this rank's thread takes longer."""
    late_s: float = 0.0


@dataclasses.dataclass(frozen=True)
class Machine:
    """Hosts with ranks, and a network between them."""

    ranks: int
    hosts: int | Sequence[int] = 1
    """The number of hosts, or the number of ranks on each."""
    domains: int | Sequence[int] | None = None
    """The number of domains of every host, or the number of ranks in each; the model takes all
    ranks of a host to be equally close.
    """
    gbps: float | None = None
    """The rate at which a host sends, and receives, in Gbit/s."""
    latency_us: float | None = None
    """The time from sending a message's last byte until its receiver can see it, between hosts."""
    switches: Sequence[Switch] = ()
    """Levels of switches, innermost first."""
    slowdown_max: float = 0.0
    """Every rank is slower by a share that is drawn from 0 to this."""
    stragglers: Sequence[Straggler] = ()
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Other parameters that differ from the defaults: `host` and `network` of a measured machine.
    """

    def call(
        self, collective: str, root: int | None = None, memory: str = "ordinary", wire: str | None = None
    ) -> CallShape:
        """A call of all its ranks."""
        return CallShape(collective, self.ranks, root, self.hosts, memory, domains=self.domains, wire=wire)

    def question(self) -> dict[str, Any]:
        """The input of the native core."""
        host = dict(self.parameters.get("host", {}))
        network = dict(self.parameters.get("network", {}))
        if self.gbps is not None:
            network["bytes_per_s"] = self.gbps * BYTES_PER_GBIT
        if self.latency_us is not None:
            network["latency_s"] = self.latency_us * 1e-6
        return {
            "host": host,
            "network": network,
            "switches": [dataclasses.asdict(switch) for switch in self.switches],
            "variation": {"slowdown_max": self.slowdown_max},
            "stragglers": [dataclasses.asdict(straggler) for straggler in self.stragglers],
        }

    def scaled(self, ranks: int) -> Machine:
        """The same machine with another number of ranks, and as many of them on a host as before.

        Its ranks are equal.
        """
        per_host = self.ranks_per_host
        return dataclasses.replace(self, ranks=ranks, hosts=-(-ranks // per_host), stragglers=())

    @property
    def ranks_of_hosts(self) -> list[int]:
        """The number of ranks on each host."""
        if not isinstance(self.hosts, int):
            return list(self.hosts)
        return [self.ranks // self.hosts + (host < self.ranks % self.hosts) for host in range(self.hosts)]

    @property
    def ranks_per_host(self) -> int:
        """The number of ranks on the fullest host."""
        return -(-self.ranks // self.hosts) if isinstance(self.hosts, int) else max(self.hosts)
