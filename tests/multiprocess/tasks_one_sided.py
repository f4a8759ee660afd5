"""Tasks of the tests of one-sided operations."""

import signal
import threading

import numpy as np
import pytest
from cases import DTYPES, random_array

import weft
from weft.api.symmetric import SymmetricArray

ELEMENTS = 3001


def put_and_get(group):
    """Every type and several lengths: to the next rank and back, with and without a signal."""
    after, before = (group.rank + 1) % group.size, (group.rank - 1) % group.size
    for dtype in [*DTYPES, np.dtype(np.complex64)]:
        known = np.dtype(np.float32) if dtype.kind == "c" else dtype
        buffer = group.symmetric((3, ELEMENTS), dtype, signals=2)
        mine, theirs = (
            random_array(np.random.default_rng(rank), known, ELEMENTS).astype(dtype) for rank in (group.rank, before)
        )
        buffer.put(after, mine, at=(1,))
        buffer.put_signal(after, mine[:5], at=(2, 7), signal=1, value=3, op="set")
        buffer.wait_signal(1, "==", 3)
        assert np.array_equal(buffer[1], theirs)
        assert np.array_equal(buffer[2, 7:12], theirs[:5])
        assert not buffer[0].any()
        group.barrier()
        assert np.array_equal(buffer.get(after, (1,), ELEMENTS), mine)
        assert np.array_equal(buffer.get(after)[1], mine)
        assert buffer.get(after, 5, (2, 3)).shape == (2, 3)
        group.barrier()


def layouts(group):
    """Arrays put and got need not be contiguous, and may be empty, a number, or a tensor."""
    after = (group.rank + 1) % group.size
    buffer = group.symmetric(20, np.float64)
    grid = np.arange(40.0).reshape(5, 8)
    buffer.put_signal(after, grid[::2, 1::3])
    buffer.wait_signal(value=1)
    assert np.array_equal(buffer[:9], grid[::2, 1::3].ravel())
    out = np.zeros((4, 6))
    assert buffer.get(after, 0, out=out[:3, ::2]) is not None
    assert np.array_equal(out[:3, ::2].ravel(), grid[::2, 1::3].ravel())
    assert not out[3].any()
    assert not out[:, 1::2].any()
    buffer.put_signal(after, np.empty(0), at=20)
    buffer.put_signal(after, 2.5, at=19)
    buffer.wait_signal(value=3)
    assert buffer[19] == 2.5
    buffer.put_signal(after, np.float64(3.5), at=18)
    buffer.wait_signal(value=4)
    assert buffer[18] == 3.5
    buffer.put(group.rank, 7, at=17)
    assert buffer[17] == 7
    assert buffer.get(after, 20, 0).size == 0
    assert buffer.get(after, 3, ()).shape == ()
    group.barrier()


def handles(group):
    """Many operations in flight."""
    after = (group.rank + 1) % group.size
    buffer = group.symmetric((30, 20_000), np.int32)
    rows = [np.full(20_000, group.rank * 100 + row, np.int32) for row in range(30)]
    arrived = buffer.wait_signal_async(0, ">=", 30)
    works = [buffer.put_signal_async(after, row, at=(number,)) for number, row in enumerate(rows)]
    for work in works:
        work.wait()
    arrived.wait()
    before = (group.rank - 1) % group.size
    assert np.array_equal(buffer[:, 0], before * 100 + np.arange(30))
    group.barrier()
    got = [buffer.get_async(after, (row,), 20_000) for row in range(30)]
    for row, work in zip(rows, got, strict=True):
        assert np.array_equal(work.wait(), row)
    buffer.quiet_async().wait()
    never = buffer.wait_signal_async(0, "==", 1000)
    with pytest.raises(weft.StillRunning):
        never.wait(0.05)
    assert not never.done
    group.barrier()
    buffer.signal(after, value=970)
    never.wait()
    group.barrier()


def contention(group, times):
    """Atomics of all ranks on one cell: sums, and the values that each has read; a lock;
    signals.
    """
    cells = group.symmetric(8, np.int64)
    met = [cells.fetch_add(1, -(group.rank + 1), at=3) for _ in range(times)]
    for _ in range(5):
        while cells.compare_swap(0, 0, group.rank + 1) != 0:
            pass
        value = cells.get(1, 5, 1)
        cells.put(1, value + 1, at=5)
        cells.quiet()
        assert cells.compare_swap(0, group.rank + 1, 0) == group.rank + 1
    for peer in range(group.size):
        cells.signal(peer, 4, 2)
    cells.wait_signal(4, "==", 2 * group.size)
    group.barrier()
    total = -times * group.size * (group.size + 1) // 2
    assert cells.fetch_add(1, 0, at=3) == total
    assert cells.get(1, 5, ()) == 5 * group.size
    assert cells.signal_fetch(4) == cells.signals[4] == 2 * group.size
    group.barrier()
    return met


def order(group, rounds):
    """Data put before a fence has arrived when the signal behind it has."""
    buffer = group.symmetric(5000, np.uint64)
    after, before = (group.rank + 1) % group.size, (group.rank - 1) % group.size
    for number in range(1, rounds + 1):
        buffer.put(after, np.full(5000, number, np.uint64))
        buffer.fence()
        buffer.signal(after, value=number, op="set")
        buffer.wait_signal(value=number)
        assert np.all(buffer == number)
        buffer.signal(before, 1, number, "set")
        buffer.wait_signal(1, "==", number)


def mistakes(group):
    """Errors name the buffer, and do not change it."""
    buffer = group.symmetric((2, 3), np.float32, signals=1, name="halo")
    for wrong in (
        lambda: buffer.put(0, np.zeros(3, np.float64)),
        lambda: buffer.put(0, np.zeros(3, np.float32), at=4),
        lambda: buffer.put(0, np.zeros(3, np.float32), at=(2,)),
        lambda: buffer.put(0, np.zeros(3, np.float32), at=(0, 0, 0)),
        lambda: buffer.put_signal(0, 1.0, signal=1),
        lambda: buffer.put(0, "text"),
        lambda: buffer.put(0, 1j),
        lambda: group.symmetric(1, np.int8, name="halo").put(0, 1.5),
        lambda: group.symmetric(1, np.uint8, name="halo").put(0, 256),
        lambda: buffer.get(0, 7),
        lambda: buffer.get(0, -1),
        lambda: buffer.get(0, 0, 7),
        lambda: buffer.get(0, out=np.zeros(6)),
        lambda: buffer.wait_signal(3),
        lambda: buffer.fetch_add(0, 1),
    ):
        with pytest.raises((weft.ArgumentError, weft.ConfigError), match=r'symmetric buffer "halo"|data is a str'):
            wrong()
    for wrong in (
        lambda: buffer.put(group.size, 1.0),
        lambda: buffer.wait_signal(0, "=>", 1),
        lambda: buffer.signal(0, value=-1),
        lambda: buffer.signal(0, op="times"),
        lambda: buffer[:1].put(0, 1.0),
        lambda: (buffer + 1).quiet(),
        lambda: group.symmetric(3, signals=-1),
    ):
        with pytest.raises(weft.ArgumentError):
            wrong()
    assert not buffer.any()
    group.barrier()
    buffer.free()
    with pytest.raises(weft.ConfigError, match='"halo" cannot be used'):
        buffer.put(0, 1.0)
    assert not buffer.any()
    group.barrier()


def views(group):
    """Parts of ranks on this host are arrays; others say so."""
    buffer = group.symmetric((2, 3), np.int16)
    buffer[:] = group.rank
    group.barrier()
    mapped = [group.hosts[peer] == group.hosts[group.rank] for peer in range(group.size)]
    for peer in range(group.size):
        if mapped[peer]:
            assert np.all(buffer.at(peer) == peer)
            assert buffer.at(peer).shape == (2, 3)
        else:
            with pytest.raises(weft.UnsupportedError, match="not mapped"):
                buffer.at(peer)
    group.barrier()
    if mapped[0]:
        buffer.at(0)[1, group.rank % 3] = 100 + group.rank
    group.barrier()
    if group.rank == 0:
        assert buffer[1, 0] >= 100


def interrupt(group):
    """Ctrl-C ends a wait; a later wait ends normally."""
    buffer = group.symmetric(1)
    # A process started in the background inherits that it is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        threading.Timer(0.2, signal.raise_signal, [signal.SIGINT]).start()
        buffer.wait_signal()
    group.barrier()
    buffer.signal((group.rank + 1) % group.size)
    buffer.wait_signal()
    group.barrier()


def make_buffer(group):
    """Makes a buffer for the tasks below, and keeps it."""
    kept[:] = [group.symmetric(100_000, np.int64, name="awaited")]
    group.barrier()


def wait_for_a_signal(_group, timeout):
    """Waits for a signal that no rank sends; returns the error."""
    try:
        kept[0].wait_signal(timeout=timeout)
    except weft.Error as error:
        return type(error).__name__, str(error)
    return None


def get_until_it_fails(_group):
    """Reads and changes rank 2's memory until that fails; the error."""
    try:
        while True:
            kept[0].get(2)
            kept[0].fetch_add(2, 1)
    except weft.Error as error:
        return type(error).__name__, str(error)


kept: list[SymmetricArray] = []
