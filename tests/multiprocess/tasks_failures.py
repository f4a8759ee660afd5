"""Tasks of the tests of failures."""

import threading
import time

import numpy as np

import weft


def reduce_once(group):
    """An operation that works while the group does."""
    group.all_reduce(np.ones(3))


def reduce_until_it_fails(group):
    """Goes on until an error; returns it, and when it came."""
    x = np.ones(1001)
    try:
        while True:
            group.all_reduce(x)
    except weft.PeerLost as error:
        return type(error).__name__, error.rank, time.monotonic()


def stream_until_it_fails(group, elements):
    """Rank 0 sends numbered messages to the last rank, the others wait; returns the error, and when
    it came.
    """
    x = np.zeros(elements, np.int64)
    number, last = 0, group.size - 1
    try:
        while True:
            number += 1
            if group.rank == 0:
                x[:] = number
                group.send(x, last)
            elif group.rank == last:
                group.recv(x, 0)
                assert x[0] == x[-1] == number
            else:
                group.recv(x, last, tag=1)
    except weft.PeerLost as error:
        return type(error).__name__, error.rank, time.monotonic()


def miss_the_deadline(group):
    """Rank 0 does not come."""
    if group.rank == 0:
        return None
    started = time.monotonic()
    try:
        group.all_reduce(np.ones(5), timeout=0.5)
    except weft.Timeout as error:
        return str(error), time.monotonic() - started


def call_different_things(group):
    """Rank 1 disagrees with the others about the count."""
    try:
        group.all_reduce(np.ones(6 if group.rank == 1 else 5), timeout=20)
    except weft.Desync as error:
        return str(error)


def abort_from_a_thread(group):
    """Rank 0 aborts what all ranks wait for."""
    if group.rank == 0:
        threading.Timer(0.1, group.abort, ["enough"]).start()
    try:
        group.recv(np.ones(1), tag=9, timeout=20)
    except weft.Aborted as error:
        return str(error)


def receive_less_than_is_sent(group):
    """The sender and the receiver of messages of different lengths, and whom nobody asks; all go on
    afterwards.
    """
    told = []
    for elements in (2, 100_000):
        try:
            if group.rank == 0:
                group.send(np.zeros(elements), 1)
            elif group.rank == 1:
                group.recv(np.zeros(1), 0)
        except weft.ConfigError as error:
            told.append(str(error))
        group.barrier()
    return told


def leave_after_a_message_that_does_not_fit(group):
    """Rank 1 gives up over a message; rank 0 needs it later, and is told why it is gone."""
    if group.rank == 0:
        group.send(np.zeros(2), 1)
        try:
            group.recv(np.zeros(1), 1, tag=7)
        except weft.PeerLost as error:
            return str(error)
    elif group.rank == 1:
        try:
            group.recv(np.zeros(1), 0)
        except weft.ConfigError as error:
            group.close()
            return str(error)
    return ""
