"""Tasks of the tests of claimed steps."""

import time

import numpy as np

import weft
from weft.schedule import Builder, Schedule
from weft.symmetric import SymmetricArray

ELEMENTS = 1_000_003
CHUNKS = 4
"""Of each rank's share."""


def shared_slices(ranks: int) -> Schedule:
    """Slice-reduce on symmetric memory. Every rank adds its share, then helps with the others'
    while it would wait.
    """
    builder = Builder("all-reduce", ranks, chunks=ranks * CHUNKS)
    for me in builder.programs:
        circle = [me.after(distance) for distance in range(ranks)]
        for other in circle[1:]:
            me.signal(other)
        for other in circle[1:]:
            me.wait(other)
        for owner in circle:
            by = [owner.after(distance) for distance in range(ranks)]
            for chunk in range(owner.rank * CHUNKS, (owner.rank + 1) * CHUNKS):
                everybody = [program.output[chunk] for program in builder.programs]
                me.reduce(everybody, everybody, final=True, claim=by)
            if owner is me:
                for other in circle[1:]:
                    me.signal(other)
        for other in circle[1:]:
            me.wait(other)
    return builder.build()


def make_arena(group):
    """Makes what the tasks below need, and keeps it."""
    group.use_schedule("shared", shared_slices(group.size))
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
    """Goes on until an error; returns it, and when it came."""
    try:
        while True:
            group.all_reduce(kept[0], algorithm="shared")
    except weft.PeerLost as error:
        return type(error).__name__, error.rank, time.monotonic()


kept: list[SymmetricArray] = []
