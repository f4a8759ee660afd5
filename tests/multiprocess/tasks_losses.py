"""Tasks of the tests of memory that lost ranks may still write."""

import time

import numpy as np

import weft
from weft.bootstrap import endpoints

MARK = 17.0


def make_arena(group, elements):
    """Makes the memory of the tasks below."""
    keep.append(group.symmetric(elements, np.float32))
    group.all_reduce(keep[-1])


def sum_symmetric_until_it_fails(group, timeout):
    """Sums in symmetric memory until a rank is missing; then marks that memory."""
    arena = keep[-1]
    try:
        while True:
            arena[:] = 1
            group.all_reduce(arena, timeout=timeout)
    except weft.Error as error:
        arena[:] = MARK
        return type(error).__name__, str(error)


def look_at_symmetric(_group):
    """Returns the content of the symmetric memory that was written after the failure."""
    return [float(value) for value in np.unique(keep[-1])]


def reduce_once(group):
    """An operation that works while the group does."""
    group.all_reduce(np.ones(3))


def reduce_until_it_fails_and_leave(group):
    """Continues until an error, and leaves the group; returns the error, and the memory in
    quarantine.
    """
    x = np.ones(1001)
    try:
        while True:
            group.all_reduce(x)
    except weft.PeerLost as error:
        group.close()
        text = str(error)
    until = time.monotonic() + 10
    while (quarantined := endpoints.pool_bytes()[1]) and time.monotonic() < until:
        time.sleep(0.01)
    return text, quarantined


keep: list[np.ndarray] = []
