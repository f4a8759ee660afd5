"""Description of a call: collective, group, memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

__all__ = ["CallShape", "plain_hosts"]


@dataclasses.dataclass(frozen=True)
class CallShape:
    """For which call of which group a schedule is wanted."""

    collective: str
    ranks: int
    root: int | None = None
    """The root of a rooted collective; rank 0, if left out."""
    hosts: int | Sequence[int] | None = None
    """So many hosts, or the number of ranks on each; without it all ranks are on one."""
    memory: str = "ordinary"
    """`ordinary` or `symmetric`."""
    sizes: str = "equal"
    """`equal`, or `per-rank` where blocks have a size per rank."""
    domains: int | Sequence[int] | None = None
    """Into how many parts every host is divided, or the number of ranks in each; without it hosts
    are not divided.
    """
    wire: str | None = None
    """The format in which elements travel between hosts; as they are, if left out."""

    def question(self) -> dict[str, Any]:
        """As the core reads it."""
        return {**dataclasses.asdict(self), "hosts": plain_hosts(self.hosts), "domains": plain_hosts(self.domains)}


def plain_hosts(hosts: int | Sequence[int] | None) -> int | list[int] | None:
    """Hosts as JSON knows them."""
    return hosts if hosts is None or isinstance(hosts, int) else list(hosts)
