"""A rank with standard streams closed, into which something prints all the time."""

import json
import os
import sys
import threading
import time
from pathlib import Path

import numpy as np

import weft


def is_open(number: int) -> bool:
    """Whether there is a descriptor of this number; opens none to find out."""
    return os.path.lexists(f"/proc/self/fd/{number}")


def target(number: int) -> str:
    """Returns the target of a descriptor."""
    return str(Path(f"/proc/self/fd/{number}").readlink())


CLOSED = [number for number in range(3) if not is_open(number)]
"""At the program's start, before weft opens anything."""


def open_for_long() -> list[str]:
    """The closed streams that stay taken for long: threads of weft take them for moments."""
    ends = time.monotonic() + 10
    while any(map(is_open, CLOSED)) and time.monotonic() < ends:
        time.sleep(0.005)
    return [target(number) for number in CLOSED if is_open(number)]


class Printing:
    """A thread that writes to closed standard streams, as libraries do that do not know of it."""

    def __init__(self) -> None:
        self.taken: set[str] = set()
        """Files that it has written to although the program has closed them."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._print)

    def __enter__(self) -> "Printing":
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ended.set()
        self._thread.join()

    def _print(self) -> None:
        while not self._ended.wait(0.001):
            for number in CLOSED:
                try:
                    os.write(number, b"\xff" * 64)
                    self.taken.add(f"{number}: a write went to {target(number)}")
                except OSError:  # nothing is there, or for a moment nothing that can be written to
                    pass


def add(group: weft.Group) -> list[str]:
    """Sums of ordinary and symmetric memory, small and large; says which are wrong."""
    wrong = []
    expected = sum(range(1, group.size + 1))
    for count in (1, 100_000):
        symmetric = group.symmetric(count)
        for name, numbers in (("ordinary", np.zeros(count, np.float32)), ("symmetric", symmetric)):
            for _ in range(2):
                numbers[:] = group.rank + 1
                group.all_reduce(numbers)
                if not (numbers == expected).all():
                    wrong.append(f"{name} {count}: {numbers[numbers != expected][:3]}")
    return wrong


def main() -> None:
    """Meets the others, adds, and writes the observations to a file."""
    rank, size, address, transport, result = sys.argv[1:]
    with Printing() as printing:
        where = {"address": address, "transport": transport, "metrics": "127.0.0.1:0"}
        with weft.init(int(rank), int(size), timeout=60, **where) as group:
            wrong = add(group)
            group.barrier()
            still_open = open_for_long()
    seen = {"closed": CLOSED, "wrong": wrong, "taken": sorted(printing.taken), "open": still_open}
    Path(result).write_text(json.dumps(seen))


main()
