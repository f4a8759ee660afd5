"""A rank of two; it may be left so little memory that it cannot map the other's pool."""

import resource
import sys
from pathlib import Path

import numpy as np

import weft

POOL = 1 << 30


def limit_memory() -> None:
    """The room for existing memory, the own pool, and half of another one."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + POOL + POOL // 2
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main() -> None:
    """Meets the other rank, and adds."""
    rank, address, limited = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "1"
    if limited:
        limit_memory()
    with weft.init(rank, 2, address=address, pool_bytes=POOL, timeout=30) as group:
        numbers = np.ones(1000)
        group.all_reduce(numbers)
        assert (numbers == 2).all()
        print(f"over {group._native.transport(1 - rank)}")
        print(group.describe())
        group.barrier()


main()
