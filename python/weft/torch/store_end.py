"""The end of a job's store that torch's rank 0 serves."""

from __future__ import annotations

import socket
import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore
from torch.distributed import distributed_c10d

from weft._weft import AboveStandardStreams
from weft.bootstrap.stores import rendezvous

__all__ = ["StoreEnd"]

_POLL_S = 0.01
_SLICE = timedelta(milliseconds=100)
_LINGER_S = 0.3
"""Rank 0 has left: its store ends now, unless the program keeps it."""


class StoreEnd:
    """Keeps ranks in the default group until the store that torch made for it ends.

    `destroy_process_group` ends the store, which rank 0 serves. A quicker rank that calls
    `init_process_group` again would connect to the old store, at the same port, and lose it while
    it meets the others.
    """

    def __init__(self, options: Any) -> None:
        """`options` are torch's `_DistributedBackendOptions`."""
        self._store = PrefixStore("weft end of the store", options.store)
        self._address = rendezvous(options.store)
        self._rank = options.group_rank
        self._is_default = not options.global_ranks_in_group

    def wait(self, timeout_s: float) -> None:
        """Called last by every rank that leaves in order.

        Args:
            timeout_s: Seconds to wait for rank 0 to leave, too.
        """
        if not self._is_default or not _made_by_torch():
            return
        try:
            if self._rank == 0:
                self._store.set("left", "")
                self._store.check(["left"])  # answered after the ranks that wait for it
            else:
                self._wait(timeout_s)
        except RuntimeError:
            return  # it has ended: stores raise different errors

    def _wait(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not self._has_rank_0_left():
            if time.monotonic() >= deadline:
                return
        # Not by the store's own wait, which would warn of its end.
        deadline = time.monotonic() + _LINGER_S
        while time.monotonic() < deadline and self._is_served():
            time.sleep(_POLL_S)

    def _has_rank_0_left(self) -> bool:
        """Waits for a moment, so that Ctrl-C is handled; the store answers before it ends."""
        try:
            self._store.wait(["left"], _SLICE)
        except dist.DistNetworkError:
            return True
        except RuntimeError:  # not yet
            return False
        return True

    def _is_served(self) -> bool:
        if self._address is None:
            return False
        host, _, port = self._address.rpartition(":")
        try:
            with AboveStandardStreams(), socket.create_connection((host.strip("[]"), int(port)), _LINGER_S):
                return True
        except OSError:
            return False


def _made_by_torch() -> bool:
    """Whether torch, not the program or an agent, has made the store of the default group."""
    method = getattr(distributed_c10d, "_default_pg_init_method", None)
    return method is not None and not method.startswith("file") and not dist.is_torchelastic_launched()
