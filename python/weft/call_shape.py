"""Description of a call: collective, group, memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

__all__ = ["CallShape", "plain_hosts"]


@dataclasses.dataclass(frozen=True)
class CallShape:
    """The group and the call that a schedule is for."""

    collective: str
    ranks: int
    root: int | None = None
    """The root of a rooted collective; rank 0 by default."""
    hosts: int | Sequence[int] | None = None
    """The number of hosts, or the number of ranks on each; by default all ranks are on one host."""
    memory: str = "ordinary"
    """`ordinary` or `symmetric`."""
    sizes: str = "equal"
    """`equal`, or `per-rank` where blocks have a size per rank."""
    domains: int | Sequence[int] | None = None
    """The number of domains of every host, or the number of ranks in each; by default hosts are not
    divided.
    """
    wire: str | None = None
    """The format in which elements are sent between hosts; by default their own."""

    def question(self) -> dict[str, Any]:
        """The input of the native layer."""
        return {**dataclasses.asdict(self), "hosts": plain_hosts(self.hosts), "domains": plain_hosts(self.domains)}


def plain_hosts(hosts: int | Sequence[int] | None) -> int | list[int] | None:
    """Hosts in the form for JSON."""
    return hosts if hosts is None or isinstance(hosts, int) else list(hosts)
