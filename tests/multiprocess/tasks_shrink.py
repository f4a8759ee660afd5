"""Tasks of the tests of groups of the ranks that are left."""

import os
import random
import signal
import threading
import time

import numpy as np

import weft


def _until_it_fails(group, timeout=20):
    x = np.ones(1001)
    try:
        while True:
            group.all_reduce(x, timeout=timeout)
            x[:] = 1
    except weft.Error as error:
        return error


def _check(group):
    x = np.full(1001, float(group.rank + 1))
    group.all_reduce(x)
    assert x[0] == sum(range(1, group.size + 1))


def work_once(group):
    """An operation that works while the group does."""
    _check(group)


def go_on_after_a_loss(group):
    """Works until a rank is lost, then with the remaining ones; returns those, and the time until
    they had their group.
    """
    error = _until_it_fails(group)
    assert isinstance(error, weft.PeerLost), error
    since = time.monotonic()
    left = group.shrink()
    took = time.monotonic() - since
    ranks = group.ranks_of(left)
    group.close()
    for _ in range(20):
        _check(left)
    assert left.split(0).size == left.size
    left.close()
    return ranks, took


def end_in_the_middle(group, victims, seed):
    """As `go_on_after_a_loss`, where ranks end by themselves at some moment near the first loss."""
    rng = random.Random(seed + group.rank)
    if group.rank in victims:
        die = threading.Timer(rng.uniform(0, 0.05), os.kill, (os.getpid(), signal.SIGKILL))
        die.start()
    world = list(range(group.size))
    while True:
        _until_it_fails(group)
        smaller = group.shrink(timeout=20)
        world = [world[rank] for rank in group.ranks_of(smaller)]
        group.close()
        group = smaller
        if not set(world) & set(victims):
            _check(group)
            return world


def stop_and_come_late(group, timeout):
    """The stopped rank gets an error when it continues; the others exclude it."""
    error = _until_it_fails(group, 1)
    try:
        left = group.shrink(timeout=timeout)
    except weft.Error as late:
        return type(late).__name__, str(late)
    ranks = group.ranks_of(left)
    _check(left)
    keep.append(left)
    return type(error).__name__, ranks


def wait_in_shrink(group):
    """Waits for a rank that never comes, until it is interrupted; returns the delay after that."""
    if group.rank != 1:
        return None
    # A process started in the background inherits that it is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sent = []

    def interrupt():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    try:
        threading.Timer(0.5, interrupt).start()
        group.shrink(timeout=20)
    except KeyboardInterrupt:
        return time.monotonic() - sent[0]
    return None


keep: list[weft.Group] = []


def let_a_new_rank_in(group, address, transport):
    """Continues after a loss with the remaining ranks, and then with a new process."""
    _until_it_fails(group)
    left = group.shrink()
    group.close()
    _check(left)
    whole = weft.rejoin(left.rank, left.size + 1, address=address, epoch=1, transport=transport)
    left.close()
    state = np.full(7, 3.0)
    whole.broadcast(state, 0)
    _check(whole)
    keep.append(whole)
    return whole.rank, whole.size
