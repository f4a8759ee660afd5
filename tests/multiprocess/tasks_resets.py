"""Tasks of the tests of connections that are reset."""

import random
import sys
import threading
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "chaos"))

from reset_sockets import reset_one

PAUSE_S = (0.004, 0.03)


def sum_while_connections_are_reset(group, calls, seed):
    """Compares sums of all sizes while this rank resets one of its connections after the other.

    Returns the wrong ones, and how many connections were made anew.
    """
    over = threading.Event()
    draw = random.Random(f"{seed}/{group.rank}")

    def disturb():
        while not over.wait(draw.uniform(*PAUSE_S)):
            reset_one(draw)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        wrong = [call for call in range(calls) if not _is_exact(group, call, seed)]
    finally:
        over.set()
        thread.join()
    group.barrier()
    return wrong, sum(row[-1] for row in group.native.traffic())


def _is_exact(group, call, seed):
    """Whether a sum has the right bits: of whole numbers, so that no order matters."""
    common = random.Random(f"{seed}/{call}")
    count = common.choice((1, 77, 5000, 100_000, 1_000_000))
    numbers = [common.randrange(1000) for _ in range(group.size)]
    ramp = np.arange(count, dtype=np.float32) % 97
    mine = ramp + np.float32(numbers[group.rank])
    group.all_reduce(mine)
    return np.array_equal(mine, group.size * ramp + np.float32(sum(numbers)))
