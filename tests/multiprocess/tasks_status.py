"""Tasks of the tests of `weft top`."""

import time

import numpy as np


def sum_for(group, seconds):
    """Small sums, until rank 0 ends them."""
    x, ends = np.ones(1000, np.float32), time.monotonic() + seconds
    goes_on = np.ones(1)
    while goes_on[0]:
        group.all_reduce(x)
        goes_on[0] = time.monotonic() < ends
        group.broadcast(goes_on, 0)


def sum_without(group, absent, seconds):
    """A sum of which one rank stays away for some seconds, with the interpreter lock."""
    x = np.ones(300_000, np.float32)
    group.barrier()
    if group.rank == absent:
        hold_lock(seconds)
    group.all_reduce(x)


def sum_late(group, late, seconds):
    """A sum, before which one rank loads data."""
    x = np.ones(1000, np.float32)
    group.barrier()
    if group.rank == late:
        time.sleep(seconds)
    group.all_reduce(x)


def hold_lock(seconds):
    """Computes in one call of the interpreter's, so that no other thread of Python's runs."""
    size, took = 10_000, 0.0
    while took < seconds:
        started = time.monotonic()
        pow(3, size)
        took, size = time.monotonic() - started, size * 2
