"""Tasks of the tests of counters."""

import numpy as np


def calls(group):
    """The calls of each rank: 20 MB by all-reduce, and a message to the next."""
    group.all_reduce(np.ones(5_000_000, np.float32))
    works = [group.all_reduce_async(np.ones(4, np.float32)) for _ in range(10)]
    for work in works:
        work.wait()
    other = 1 - group.rank
    sending = group.send_async(np.ones(10), other)
    group.recv(np.empty(10), other)
    sending.wait()
