"""Test of one transport, `python -m weft.diagnosis.probe shm`: an all-reduce of two processes."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from contextlib import closing

import numpy as np

from weft.processes.local_ranks import die_with_parent
from weft.processes.ports import free_ports
from weft.world import init

_CALLS = 200
_TIMEOUT_S = 25.0
"""Rank 1 loads Python meanwhile, on a machine that may be busy."""


def main() -> None:
    """Rank 0 starts rank 1 and prints how long a call takes."""
    transport = sys.argv[1]
    if len(sys.argv) > 2:
        die_with_parent()
        measure(1, transport, int(sys.argv[2]))
        return
    port = free_ports(1)[0]
    other = subprocess.Popen([sys.executable, "-m", "weft.diagnosis.probe", transport, str(port)])
    try:
        median_us = measure(0, transport, port)
        other.wait(_TIMEOUT_S)
    finally:
        other.kill()
        other.wait()
    print(f"all-reduce of 4 bytes, 2 processes: {median_us:.1f} us (median of {_CALLS})")


def measure(rank: int, transport: str, port: int) -> float:
    """The median time of an all-reduce, in microseconds."""
    address = f"127.0.0.1:{port}"
    with closing(init(rank, 2, address=address, transport=transport, timeout=_TIMEOUT_S)) as group:
        times = []
        for _ in range(_CALLS):
            values = np.ones(1, np.float32)
            begin = time.perf_counter()
            group.all_reduce(values)
            times.append(time.perf_counter() - begin)
            if values[0] != 2:
                raise RuntimeError(f"wrong result: {values[0]} instead of 2")
    return statistics.median(times) * 1e6


if __name__ == "__main__":
    main()
