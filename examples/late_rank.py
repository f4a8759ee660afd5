"""A rank that is late, and then calls something else, for `weft trace` to report.

torchrun --standalone --nproc-per-node 3 examples/late_rank.py && weft trace
"""

import time

import numpy as np

import weft

group = weft.init()
gradients = np.ones(10_000, np.float32)
try:
    for step in range(20):
        if step == 10 and group.rank == 1:
            time.sleep(0.05)
        group.all_reduce(gradients)
    for _ in range(2):
        if group.rank == 2:
            group.broadcast(gradients, 0)
        else:
            group.all_reduce(gradients)
except weft.Desync as error:
    if group.rank == 0:
        print(error)
