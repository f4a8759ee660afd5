"""Tasks of the tests of flight records."""

import time
from pathlib import Path

import numpy as np

import weft


def operations(group):
    """Makes one operation of each kind; returns the recorded ones."""
    x = np.ones(70_000, np.float32)
    group.all_reduce(x[:10])
    group.broadcast(x, 0)
    group.all_gather(x[:10])
    blocks = np.ones(10 * group.size, np.float32)
    group.reduce_scatter(blocks)
    group.all_to_all(blocks)
    mine = np.ones(group.rank + 1, np.float32)
    group.gather_v(mine, [rank + 1 for rank in range(group.size)])
    group.barrier()
    following, before = (group.rank + 1) % group.size, (group.rank - 1) % group.size
    for elements in (10, 30_000):
        work = group.send_async(x[:elements], following, tag=5)
        group.recv(x[:elements].copy(), before, tag=5)
        work.wait()
    work = group.all_reduce_async(x, "max", priority=3)
    work.wait()
    (record,) = weft.flight_record()
    return record


def one_sided_operations(group):
    """Makes each kind, on the next rank's part; returns the recorded ones."""
    following = (group.rank + 1) % group.size
    cells = group.symmetric(4000, np.int64, signals=1)
    cells.put(following, np.ones(4000, np.int64))
    assert cells.fetch_add(following, 0) == 1
    cells.quiet()
    waiting = cells.wait_signal_async()
    group.barrier()
    cells.signal(following)
    waiting.wait()
    assert cells.get(following, count=1000).sum() == 1000
    group.barrier()
    (record,) = weft.flight_record()
    return record


def many_operations(group, count):
    """Makes `count` small operations; returns the recorded ones."""
    x = np.ones(3)
    for _ in range(count):
        group.all_reduce(x, "max")
    (record,) = weft.flight_record()
    return record


def reduce_until_it_fails(group):
    """Continues until an error, which it returns."""
    x = np.ones(1001)
    try:
        while True:
            group.all_reduce(x, "max")
    except weft.PeerLost as error:
        return str(error)


def call_something_else(group, odd):
    """One rank broadcasts while the others reduce; the error."""
    x = np.ones(1000)
    try:
        # A rank that broadcasts need not wait for any other: the next call fails.
        for _ in range(2):
            group.broadcast(x, 0) if group.rank == odd else group.all_reduce(x)
    except weft.Error as error:
        return str(error)


def join_on_request(group, path, late):
    """An all-reduce, which one rank calls only once a file is there. The others make a file each
    when they have called it.
    """
    while group.rank == late and not Path(path).exists():
        time.sleep(0.01)
    x = np.ones(5)
    work = group.all_reduce_async(x)
    if group.rank != late:
        Path(f"{path}.{group.rank}").touch()
    work.wait()
    return float(x[0])
