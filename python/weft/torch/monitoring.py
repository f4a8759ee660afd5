"""Monitored barrier, with a report of missing ranks."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from torch._C._distributed_c10d import PrefixStore, Store

from weft.errors import Timeout
from weft.observability import reports

if TYPE_CHECKING:
    from weft import _weft

__all__ = ["MonitoredBarrier"]

_GRACE = timedelta(seconds=2)
"""The additional wait of ranks other than 0, so that rank 0 reports the missing ranks to them."""
_SHORTEST = timedelta(milliseconds=1)
"""Stores interpret a timeout of 0 as none."""
_LONGEST = timedelta(milliseconds=100)
"""A wait of the store blocks signal handlers: Ctrl-C is handled between two waits."""


class MonitoredBarrier:
    """Barriers of one group at the store, so that the group stays usable if ranks are missing."""

    def __init__(self, store: Store, group: _weft.Group) -> None:
        self._store = PrefixStore(f"weft barriers of {group.identity:016x}", store)
        self._name = group.name
        self._rank = group.rank
        self._size = group.size
        self._passed = 0

    def wait(self, timeout: timedelta) -> None:
        """Returns when every rank has called it as often; else raises `Timeout` with those missing.

        A rank that calls too late gets the error immediately.
        """
        number, self._passed = self._passed, self._passed + 1
        verdict = f"{number}/missing"
        if self._rank == 0:
            missing = self._missing(number, timeout)
            self._store.set(verdict, json.dumps(missing))
        else:
            self._store.set(f"{number}/{self._rank}", "")
            if not self._is_there([verdict], timeout + _GRACE):
                raise self._failure([0], timeout)
            missing = json.loads(self._store.get(verdict))
        if missing:
            raise self._failure(missing, timeout)

    def _missing(self, number: int, timeout: timedelta) -> list[int]:
        arrivals = {rank: f"{number}/{rank}" for rank in range(1, self._size)}
        if not arrivals or self._is_there(list(arrivals.values()), timeout):
            return []
        return [rank for rank, key in arrivals.items() if not self._store.check([key])]

    def _is_there(self, keys: list[str], timeout: timedelta) -> bool:
        deadline = time.monotonic() + timeout.total_seconds()
        while True:
            remaining = timedelta(seconds=deadline - time.monotonic())
            try:
                self._store.wait(keys, max(min(remaining, _LONGEST), _SHORTEST))
            except RuntimeError:  # stores raise different errors; a lost store fails again in `check`
                if self._store.check(keys):
                    return True
                if remaining <= _LONGEST:
                    return False
            else:
                return True

    def _failure(self, missing: list[int], timeout: timedelta) -> Timeout:
        names = f"rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))}"
        error = Timeout(
            f"{names} of {self._size} did not reach monitored_barrier of group {self._name}, which timed out after "
            f"{timeout.total_seconds()} s. Are they running? See where they wait (py-spy dump --pid PID), or pass a "
            "longer timeout"
        )
        reports.failed(self._name, error)
        return error
