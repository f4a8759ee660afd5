"""Tasks of the tests of messages, handles, sub-groups, kinds of memory, and failures."""

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np

import weft


def send_around(group, elements):
    """Sends to the next rank, receives from the one before."""
    after, before = (group.rank + 1) % group.size, (group.rank - 1) % group.size
    mine, theirs = np.full(elements, group.rank, np.int32), np.full(elements, -1, np.int32)
    sent = group.send_async(mine, after, tag=3)
    assert group.recv(theirs, before, tag=3) == before
    sent.wait()
    assert np.all(theirs == before)


def receive_by_tag(group):
    """Two messages, taken in the other order by their tags."""
    if group.rank == 0:
        for tag in (1, 2):
            group.send(np.full(5, tag), 1, tag)
    elif group.rank == 1:
        x = np.zeros(5, int)
        for tag in (2, 1):
            group.recv(x, 0, tag)
            assert np.all(x == tag)


def receive_from_any(group):
    """Rank 0 receives from all others, in the order of arrival; returns the sources."""
    if group.rank != 0:
        group.send(np.array([group.rank]), 0)
        return None
    sources, x = [], np.zeros(1, int)
    for _ in range(group.size - 1):
        source = group.recv(x)
        assert x[0] == source
        sources.append(source)
    return sorted(sources)


def receive_columns(group):
    """Neither end of the message is contiguous."""
    x = np.arange(12.0).reshape(3, 4)
    if group.rank == 0:
        group.send(x[:, 1:3], 1)
    elif group.rank == 1:
        out = np.zeros((4, 3))
        group.recv(out[:2].T)
        assert np.array_equal(out, np.concatenate([x[:, 1:3].T, np.zeros((2, 3))]))


def many_under_way(group, operations):
    """Many operations in flight, awaited in reverse order, with different priorities."""
    arrays = [np.full(100 + 37 * i, group.rank + i, np.int64) for i in range(operations)]
    works = [group.all_reduce_async(x, priority=i % 3) for i, x in enumerate(arrays)]
    for i in reversed(range(operations)):
        result = works[i].wait()
        assert result is arrays[i]
        assert works[i].done
        assert np.all(result == sum(rank + i for rank in range(group.size)))


def dropped_handle(group):
    """The memory of an operation whose handle and array are dropped stays until it has ended."""
    if group.rank == 0:
        group.all_reduce_async(np.ones(1_000_003))
        rubbish = [np.full(1_000_003, 7.0) for _ in range(3)]
        group.barrier()
        return float(rubbish[0][0])
    x = np.ones(1_000_003)
    group.all_reduce(x)
    assert np.all(x == group.size)
    group.barrier()
    return 7.0


def wait_with_timeout(group):
    """`wait(timeout)` returns; the operation continues."""
    x = np.ones(3)
    if group.rank == 0:
        work = group.all_reduce_async(x)
        assert not work.done
        try:
            work.wait(0.05)
            raise AssertionError("the others have not started yet")
        except weft.StillRunning:
            pass
        group.send(np.zeros(0), 1)
        work.wait()
    else:
        if group.rank == 1:
            group.recv(np.zeros(0), 0)
        group.all_reduce(x)
    assert np.all(x == group.size)


def layouts(group):
    """Arrays and tensors that are not contiguous, in place."""
    total = sum(range(group.size))
    whole = np.full((6, 8), group.rank, np.float32)
    for part in (whole[:, ::2], whole.T[1:3], whole[::-1, 1::2]):
        before = whole.copy()
        group.all_reduce(part)
        assert np.all(part == total)
        part[...] = -1
        touched = whole == -1
        assert np.array_equal(whole[~touched], before[~touched])
        whole[...] = group.rank


def overlapping(group):
    """Input and output that share memory, not in the way of an operation in place."""
    whole = np.arange(20) + group.rank
    expected = sum(np.arange(20) + rank for rank in range(group.size))[:10]
    group.all_reduce(whole[:10], out=whole[5:15])
    assert np.array_equal(whole[5:15], expected)


def nan_propagates(group):
    """A single NaN reaches every rank, for every type of float."""
    for dtype in (np.float64, np.float32, np.float16):
        for op in ("sum", "min", "max"):
            x = np.ones(65, dtype)
            if group.rank == group.size - 1:
                x[33] = np.nan
            group.all_reduce(x, op)
            assert np.isnan(x[33])
            assert not np.isnan(np.delete(x, 33)).any()


def structured(group):
    """Types that weft does not compute with are moved whole."""
    x = np.array([(group.rank, group.rank / 2)], [("a", "i4"), ("b", "f8")])
    assert group.all_gather(x).reshape(-1).tolist() == [(rank, rank / 2) for rank in range(group.size)]
    y = np.array([group.rank + 1j])
    assert group.broadcast(y, group.size - 1).tolist() == [group.size - 1 + 1j]


def subgroups(group):
    """Groups of even and odd ranks work together with each other and the whole."""
    half = group.split(group.rank % 2, key=-group.rank)
    members = sorted((r for r in range(group.size) if r % 2 == group.rank % 2), reverse=True)
    assert (half.rank, half.size) == (members.index(group.rank), len(members))
    assert half.all_gather(np.array([group.rank])).reshape(-1).tolist() == members
    x = np.ones(1000)
    works = [half.all_reduce_async(x), group.all_reduce_async(np.ones(10))]
    assert [float(work.wait()[0]) for work in works] == [half.size, group.size]
    half.close()


def new_groups(group):
    """Some ranks, in another order; others get None."""
    ranks = [group.size - 1, 0]
    pair = group.new_group(ranks)
    assert (pair is None) == (group.rank not in ranks)
    if pair is not None:
        assert pair.rank == ranks.index(group.rank)
        assert pair.broadcast(np.array([group.rank]))[0] == ranks[0]
        pair.close()
    none = group.split(None if group.rank == 0 else 7)
    assert (none is None) == (group.rank == 0)
    if none is not None:
        assert none.size == group.size - 1
        none.barrier()
        none.close()


def threads_with_groups(group, times):
    """Each thread has a group of its own."""
    groups = [group.new_group(range(group.size)) for _ in range(3)]
    wrong = []

    def work(own, number):
        for i in range(times):
            x = np.full(501, own.rank + number + i)
            own.all_reduce(x)
            if not np.all(x == sum(rank + number + i for rank in range(own.size))):
                wrong.append((number, i))

    threads = [threading.Thread(target=work, args=(own, i)) for i, own in enumerate(groups)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    for own in groups:
        own.close()


def symmetric(group):
    """Symmetric arrays, alone and together with ordinary ones."""
    x = group.symmetric((3, 1001), np.float32)
    assert not x.any()
    for _ in range(3):
        x[...] = group.rank
        group.all_reduce(x)
        assert np.all(x == sum(range(group.size)))
    y = x if group.rank == 0 else np.empty((3, 1001), np.float32)
    y[...] = 1
    group.all_reduce(y, "max")
    assert np.all(y == 1)


def several_worlds(group, address):
    """A second meeting at the same place."""
    again = weft.init(group.rank, group.size, address=address, transport="auto", name="again", timeout=20)
    assert again.all_reduce(np.ones(1))[0] == group.size
    again.close()


def interrupt(group):
    """Ctrl-C ends a wait; the operation continues."""
    x = np.ones(7)
    if group.rank == 0:
        main = threading.main_thread()
        assert threading.current_thread() is main
        # A process started in the background inherits that it is ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        work = group.all_reduce_async(x)
        try:
            threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start()
            work.wait()
            raise AssertionError("not interrupted")
        except KeyboardInterrupt:
            pass
        group.send(np.zeros(0), 1)
        work.wait()
    else:
        if group.rank == 1:
            group.recv(np.zeros(0), 0)
        group.all_reduce(x)
    assert np.all(x == group.size)


def release_the_interpreter(group, path):
    """Another Python thread runs while this one waits for an operation that needs that thread."""

    def tick():
        for _ in range(20):
            time.sleep(0.001)
        Path(path).touch()

    if group.rank == 0:
        thread = threading.Thread(target=tick)
        thread.start()
        group.recv(np.zeros(1), 1)
        thread.join()
    if group.rank == 1:
        while not Path(path).exists():
            time.sleep(0.001)
        group.send(np.zeros(1), 0)
