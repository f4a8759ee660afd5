"""The barrier that tells which ranks are missing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

from weft.errors import Timeout

if TYPE_CHECKING:
    from weft import _weft

__all__ = ["monitored_barrier"]

_FIRST_TAG = 2**63
"""Tags from here on are not torch's, which are 32-bit numbers."""

_GRACE_SECONDS = 2.0
"""How much longer than rank 0 the others wait, so that they learn from it who is missing."""


def monitored_barrier(group: _weft.Group, number: int, timeout: float) -> None:
    """Ends when every rank has called it with the same number, or raises `Timeout`, which names those that have not.

    Every rank tells rank 0, which answers everybody who came with the list of those who did not.
    """
    if group.rank == 0:
        _collect(group, _FIRST_TAG + number, timeout)
    else:
        _report(group, _FIRST_TAG + number, timeout)


def _collect(group: _weft.Group, tag: int, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    empty = torch.empty(0, dtype=torch.uint8)
    arrivals = [group.receive(rank, tag, 0, 0, timeout + _GRACE_SECONDS, empty) for rank in range(1, group.size)]
    missing = torch.zeros(group.size, dtype=torch.uint8)
    for rank, arrival in enumerate(arrivals, start=1):
        missing[rank] = not arrival.wait(max(deadline - time.monotonic(), 0.0))
    answers = [
        group.send(rank, tag, missing.data_ptr(), missing.nbytes, None, missing)
        for rank in range(1, group.size)
        if not missing[rank]
    ]
    for answer in answers:
        answer.wait(_GRACE_SECONDS)
    _raise_if_any(group, missing, timeout)


def _report(group: _weft.Group, tag: int, timeout: float) -> None:
    empty = torch.empty(0, dtype=torch.uint8)
    missing = torch.zeros(group.size, dtype=torch.uint8)
    arrival = group.send(0, tag, 0, 0, None, empty)
    answer = group.receive(0, tag, missing.data_ptr(), missing.nbytes, None, missing)
    if not answer.wait(timeout + _GRACE_SECONDS):
        raise Timeout(
            f"rank 0 has not answered in monitored_barrier of group {group.name} after {timeout} s: "
            "it has not reached the barrier; see what it is doing"
        )
    arrival.wait(None)
    _raise_if_any(group, missing, timeout)


def _raise_if_any(group: _weft.Group, missing: torch.Tensor, timeout: float) -> None:
    ranks = missing.nonzero().flatten().tolist()
    if ranks:
        names = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
        raise Timeout(
            f"{names} of {group.size} did not reach monitored_barrier of group {group.name} within {timeout} s. "
            "See what they are doing, or pass a longer timeout"
        )
