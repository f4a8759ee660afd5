"""Tasks of the tests of claimed steps."""

import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

import weft
from benches.device.claims import schedule
from weft.api.symmetric import SymmetricArray

ELEMENTS = 1_000_003
CHUNKS = 4
"""Of each rank's share."""


def make_arena(group):
    """Makes and keeps the groups and arrays of the tasks below."""
    group.use_schedule("shared", schedule(f"claimed-{CHUNKS}", group.size))
    kept[:] = [group.symmetric(ELEMENTS, np.float32)]
    group.all_reduce(kept[0], algorithm="shared")


def sum_for(group, seconds):
    """Adds by helped and by plain schedules, which must agree; how often, and how many steps were
    taken over.
    """
    (arena,) = kept
    parts = np.random.default_rng(7).random((group.size, ELEMENTS), np.float32)
    arena[:] = parts[group.rank]
    group.all_reduce(arena, algorithm="slice-reduce")
    plain = arena.copy()
    assert np.abs(plain - parts.sum(axis=0, dtype=np.float64)).max() < 1e-5
    until, times, again = time.monotonic() + seconds, 0, np.ones(1)
    while again[0]:
        arena[:] = parts[group.rank]
        group.all_reduce(arena, algorithm="shared")
        assert np.array_equal(arena, plain)
        times += 1
        again[0] = time.monotonic() < until
        group.broadcast(again, 0)
    return times, group.native.steps_helped


def sum_until_it_fails(group):
    """Continues until an error; returns it, and its time."""
    try:
        while True:
            group.all_reduce(kept[0], algorithm="shared")
    except weft.PeerLost as error:
        return type(error).__name__, error.rank, time.monotonic()


kept: list[SymmetricArray] = []
