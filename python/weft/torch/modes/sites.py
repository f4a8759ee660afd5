"""Sites: ranks near each other, which train as one, apart from other sites."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import ProcessGroup

from weft.errors import ArgumentError

__all__ = ["Sites"]


class Sites:
    """The sites of a training, and this rank's.

    The first rank of a site is its leader: it alone communicates with other sites.

    Attributes:
        ranks: The ranks of each site.
        index: The number of this rank's site.
        group: The process group of this rank's site, for instance for `DataParallel`.
    """

    def __init__(self, ranks: Sequence[Sequence[int]] | None = None, *, timeout: timedelta | None = None) -> None:
        """Makes the groups. Every rank calls it with the same arguments.

        Args:
            ranks: The ranks of each site; by default, each rank is a site of its own.
            timeout: The time that operations between sites may take, in which a site may pause; by
                default, the backend's. A silent peer is lost after `WEFT_PEER_TIMEOUT`.

        Raises:
            weft.ArgumentError: The sites do not have each rank once.
        """
        world = dist.get_world_size()
        self.ranks = [[rank] for rank in range(world)] if ranks is None else [list(site) for site in ranks]
        if sorted(rank for site in self.ranks for rank in site) != list(range(world)) or [] in self.ranks:
            raise ArgumentError(f"ranks={self.ranks}: expected each rank from 0 to {world - 1} in one site")
        own = dist.get_rank()
        self.index = next(number for number, site in enumerate(self.ranks) if own in site)
        self._timeout = timeout
        group = [dist.new_group(site) for site in self.ranks][self.index]
        assert isinstance(group, ProcessGroup), "this rank is in it"
        self.group = group

    @property
    def leader(self) -> int:
        """The rank that communicates for this site."""
        return self.ranks[self.index][0]

    def between(self) -> ProcessGroup | None:
        """A new group of the leaders; None on other ranks. Every rank calls it."""
        group = dist.new_group([site[0] for site in self.ranks], timeout=self._timeout)
        return group if isinstance(group, ProcessGroup) else None
