"""The end of the store of a job that torch's rank 0 serves."""

from __future__ import annotations

import time
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore
from torch.distributed import distributed_c10d

__all__ = ["StoreEnd"]

_POLL_S = 0.01
_LINGER_S = 1.0
"""Rank 0 has left: its store ends now, unless the program keeps it."""


class StoreEnd:
    """Lets the ranks leave the default group no earlier than the store that torch made for it ends.

    `destroy_process_group` ends the store, which is served by rank 0. A rank that is quicker and
    calls `init_process_group` again would connect to the old store, at the same port, and lose it
    while it meets the others.
    """

    def __init__(self, options: Any) -> None:
        """`options` are torch's `_DistributedBackendOptions`."""
        self._store = PrefixStore("weft end of the store", options.store)
        self._rank = options.group_rank
        self._is_default = not options.global_ranks_in_group

    def wait(self, timeout_s: float) -> None:
        """Called last by every rank that leaves in order.

        Args:
            timeout_s: How long to wait for rank 0 to leave, too.
        """
        if not self._is_default or not _made_by_torch():
            return
        try:
            if self._rank == 0:
                self._store.set("left", "")
            else:
                self._wait(timeout_s)
        except RuntimeError:
            return  # it has ended: stores differ in what they raise

    def _wait(self, timeout_s: float) -> None:
        deadline, left = time.monotonic() + timeout_s, False
        while time.monotonic() < deadline:
            if self._store.check(["left"]) and not left:
                deadline, left = time.monotonic() + _LINGER_S, True
            time.sleep(_POLL_S)


def _made_by_torch() -> bool:
    """Whether torch has made the store of the default group, and not the program or an agent."""
    method = getattr(distributed_c10d, "_default_pg_init_method", None)
    return method is not None and not method.startswith("file") and not dist.is_torchelastic_launched()
