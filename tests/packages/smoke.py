"""Smoke run of an installed weft: `smoke.py` starts two ranks, which sum arrays; no torch."""

import os
import platform
import socket
import subprocess
import sys

import numpy

import weft

DEADLINE_S = 120


def rank() -> None:
    with weft.init() as group:
        for dtype in (numpy.float32, numpy.float16, numpy.int64):
            numbers = numpy.full(100_000, group.rank + 1, dtype=dtype)
            group.all_reduce(numbers)
            assert (numbers == 3).all(), (dtype, numbers)
        assert "torch" not in sys.modules
        print(f"rank {group.rank} of {group.size} on {platform.machine()}", flush=True)


def start() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [
        subprocess.Popen(
            [*os.environ.get("EMULATOR", "").split(), sys.executable, __file__],
            env={**os.environ, **place, "RANK": str(number)},
        )
        for number in range(2)
    ]
    try:
        return max(process.wait(DEADLINE_S) for process in ranks)
    finally:
        for process in ranks:
            process.kill()


if __name__ == "__main__":
    sys.exit(rank() if "RANK" in os.environ else start())
