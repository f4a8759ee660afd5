"""Tasks of the tests of failures."""

import contextlib
import os
import resource
import signal
import threading
import time

import numpy as np

import weft
from weft import schedule


def reduce_once(group):
    """An operation that works while the group does."""
    group.all_reduce(np.ones(3))


def reduce_until_it_fails(group):
    """Continues until an error; returns it, and its time."""
    x = np.ones(1001)
    try:
        while True:
            group.all_reduce(x)
    except weft.PeerLost as error:
        return type(error).__name__, error.rank, time.monotonic()


def stream_until_it_fails(group, elements):
    """Rank 0 sends numbered messages to the last rank, the others wait; returns the error, and its
    time.
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


def miss_the_deadline(group, timeout=0.5):
    """Rank 0 does not take part."""
    if group.rank == 0:
        return None
    started = time.monotonic()
    try:
        group.all_reduce(np.ones(5), timeout=timeout)
    except weft.Timeout as error:
        return str(error), time.monotonic() - started


def miss_every_deadline(group, missing, elements):
    """A rank takes part in no all-reduce, each by another algorithm, but in one before, which is
    when memory is allocated. Returns the errors by algorithm.
    """
    names = sorted(row.name for row in schedule.algorithms("all-reduce") if not row.symmetric)
    children, errors = {}, {}
    for name in names:
        child = group.new_group(range(group.size))
        with contextlib.suppress(weft.ConfigError):
            child.all_reduce(np.ones(elements), algorithm=name)
            children[name] = child
    if group.rank != missing:
        started = {
            name: child.all_reduce_async(np.ones(elements), algorithm=name, timeout=4)
            for name, child in children.items()
        }
        errors = {name: _error(lambda _, work=work: work.wait())[0] for name, work in started.items()}
    group.barrier(timeout=20)
    return errors


def advance_just_before_the_deadline(group):
    """Rank 1 calls when rank 0 has hardly any time left, and rank 2 not at all. Returns the error
    of a rank.
    """
    child, error = group.new_group(range(3)), None
    child.all_reduce(np.ones(5), algorithm="direct")
    if group.rank < 2:
        time.sleep(1.8 * group.rank)
        error, _ = _error(lambda _: child.all_reduce(np.ones(5), algorithm="direct", timeout=2))
    group.barrier(timeout=20)
    return error


def call_different_things(group):
    """Rank 1 disagrees with the others about the count."""
    try:
        group.all_reduce(np.ones(6 if group.rank == 1 else 5), timeout=20)
    except weft.Desync as error:
        return str(error)


def abort_from_a_thread(group):
    """Rank 0 aborts the operation that all ranks wait for."""
    if group.rank == 0:
        threading.Timer(0.1, group.abort, ["enough"]).start()
    try:
        group.recv(np.ones(1), tag=9, timeout=20)
    except weft.Aborted as error:
        return str(error)


def receive_less_than_is_sent(group):
    """A sender and a receiver of messages of different lengths, and uninvolved ranks; all continue
    afterwards.
    """
    errors = []
    for elements in (2, 100_000):
        try:
            if group.rank == 0:
                group.send(np.zeros(elements), 1)
            elif group.rank == 1:
                group.recv(np.zeros(1), 0)
        except weft.ConfigError as error:
            errors.append(str(error))
        group.barrier()
    return errors


def leave_after_a_message_that_does_not_fit(group):
    """Rank 1 gives up over a message; rank 0 needs it later, and gets the reason of its loss."""
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


def contact(group, call):
    """Rank 1 has no link to rank 4, which is stopped, and is interrupted while it waits for one.

    Returns the error raised, and the times of signal and error; rank 0's error of the group, and
    its time.
    """
    everybody = group.new_group(range(group.size), name="everybody")
    if group.rank != 1:
        return None if group.rank == 4 or call != "all_reduce" else _error(everybody.all_reduce)
    calls = {
        "split": lambda: group.new_group([1, 4], name="pair"),
        "symmetric": lambda: everybody.symmetric(100),
        "send": lambda: group.send(np.ones(3), 4),
        "all_reduce": lambda: everybody.all_reduce(np.ones(3)),
    }
    return _interrupted(calls[call])


def wait_for_symmetric_memory(group):
    """Rank 0 is interrupted while it waits; the others call later, and are notified."""
    if group.rank == 0:
        outcome = _interrupted(lambda: group.symmetric(100))
        group.send(np.ones(1), 1)
    else:
        if group.rank == 1:
            group.recv(np.ones(1), 0)
        outcome = _error(lambda _: group.symmetric(100))[0]
    memory = group.symmetric(7)
    memory[:] = 1
    group.all_reduce(memory)
    assert np.all(memory == group.size)
    return outcome


def miss_making_symmetric_memory(group):
    """Ranks 0 and 2 do not take part. Returns the others' errors."""
    child = group.new_group(range(group.size), timeout=1)
    error = None if group.rank in (0, 2) else _error(lambda _: child.symmetric(100))[0]
    group.barrier()
    return error


def make_symmetric_memory_without_room(group, room):
    """Rank 1's system refuses it; all are notified, and the group continues. Returns the error, its
    time, and the time of this rank's call.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE), resource.getrlimit(resource.RLIMIT_NOFILE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    if group.rank == 1:
        if room == "memory":
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[0][1]))
        else:
            _allow_no_descriptor()
    called = time.monotonic()
    try:
        text, failed = _error(lambda _: group.symmetric(100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before[0])
        resource.setrlimit(resource.RLIMIT_NOFILE, before[1])
    x = np.ones(7)
    group.all_reduce(x)
    assert np.all(x == group.size)
    return text, failed, called


def contact_without_descriptors(group):
    """Rank 1 has no descriptor left for a link to rank 4: that is no loss of rank 4."""
    outcome = None
    if group.rank == 1:
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        _allow_no_descriptor()
        try:
            outcome = _error(lambda x: group.send(x, 4))[0]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        group.send(np.ones(3), 4)
    elif group.rank == 4:
        group.recv(np.ones(3), 1)
    group.all_reduce(np.ones(3))
    return outcome


def _allow_no_descriptor():
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def _interrupted(call):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sent = []

    def interrupt():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Timer(0.3, interrupt).start()
    try:
        call()
    except KeyboardInterrupt:
        return "KeyboardInterrupt", sent[0], time.monotonic()
    return "nothing", 0.0, 0.0


def _error(call):
    try:
        call(np.ones(3))
    except weft.Error as error:
        return str(error), time.monotonic()
    return "nothing", 0.0
