"""How many virtual ranks each rank carries, by how long it computes for one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from weft.errors import ArgumentError

__all__ = ["check_balance", "dealt"]

_GAIN_MIN = 0.05
"""The share of a step that must be gained: measured times vary."""


def check_balance(balance_every: int | None, virtual_ranks: int | None) -> None:
    """Checks the option `balance_every` of `DataParallel`.

    Raises:
        weft.ArgumentError: It is no number of steps, or there are no virtual ranks.
    """
    if balance_every is None:
        return
    if isinstance(balance_every, bool) or not isinstance(balance_every, int) or balance_every < 1:
        raise ArgumentError(f"balance_every={balance_every!r}: expected a number of steps of at least 1, or None")
    if virtual_ranks is None:
        raise ArgumentError(f"balance_every={balance_every}: there are no virtual ranks to deal; give virtual_ranks=")


def dealt(seconds: Sequence[float], ranges: Sequence[range]) -> list[range]:
    """Deals virtual ranks anew, so that the slowest rank ends as early as possible.

    Args:
        seconds: By rank, how long it computes for one virtual rank.
        ranges: By rank, the virtual ranks that it has.

    Returns:
        The same, contiguous and not empty; `ranges` itself if too little is gained.
    """
    counts = [1] * len(ranges)
    for _ in range(ranges[-1].stop - len(ranges)):
        ends = [count * each + each for count, each in zip(counts, seconds, strict=True)]
        counts[ends.index(min(ends))] += 1
    before = max(len(theirs) * each for theirs, each in zip(ranges, seconds, strict=True))
    after = max(count * each for count, each in zip(counts, seconds, strict=True))
    return list(_contiguous(counts)) if after < before * (1 - _GAIN_MIN) else list(ranges)


def _contiguous(counts: Sequence[int]) -> Iterator[range]:
    for start, stop in pairwise([0, *accumulate(counts)]):
        yield range(start, stop)
