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
    """How many hosts are below one of them."""
    oversubscription: float
    """What those can send together, divided by what the switch carries upwards."""
    latency_s: float = 0.0
    """How much longer a message takes that passes from below one of them to below another."""


@dataclasses.dataclass(frozen=True)
class Straggler:
    """A rank that is slow, or begins late."""

    rank: int
    slowdown: float = 1.0
    """Everything takes this rank's thread so many times as long."""
    late_s: float = 0.0


@dataclasses.dataclass(frozen=True)
class Machine:
    """Hosts full of ranks and a network between them."""

    ranks: int
    hosts: int | Sequence[int] = 1
    """So many hosts, or the number of ranks on each."""
    domains: int | Sequence[int] | None = None
    """Into how many parts every host is divided, or the number of ranks in each; all ranks of a
    host are as close.
    """
    gbps: float | None = None
    """What a host sends, and what it receives, in Gbit/s."""
    latency_us: float | None = None
    """From when a message's last byte is sent until its receiver can see it, between hosts."""
    switches: Sequence[Switch] = ()
    """Innermost first."""
    slowdown_max: float = 0.0
    """Every rank is slower than it should be, by a share drawn from 0 to this."""
    stragglers: Sequence[Straggler] = ()
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """All else, where it is not as by default: the `host` and `network` of a measured machine."""

    def call(
        self, collective: str, root: int | None = None, memory: str = "ordinary", wire: str | None = None
    ) -> CallShape:
        """A call of all its ranks."""
        return CallShape(collective, self.ranks, root, self.hosts, memory, domains=self.domains, wire=wire)

    def question(self) -> dict[str, Any]:
        """As the core reads it."""
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
        """The same with another number of ranks, and as many of them on a host as before.

        All ranks are equal.
        """
        per_host = self.ranks_per_host
        return dataclasses.replace(self, ranks=ranks, hosts=-(-ranks // per_host), stragglers=())

    @property
    def ranks_per_host(self) -> int:
        """The number of ranks on the fullest host."""
        return -(-self.ranks // self.hosts) if isinstance(self.hosts, int) else max(self.hosts)
