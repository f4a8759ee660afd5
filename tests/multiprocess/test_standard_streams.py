"""Ranks that are started with standard streams closed: weft takes none of their descriptors."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from team import free_port

MEMBER = Path(__file__).with_name("member_without_streams.py")
COMBINATIONS = [set(closed) for count in range(4) for closed in itertools.combinations(range(3), count)]
"""Rank r closes those of entry r before it starts."""
DEADLINE_SECONDS = 60


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_sums_are_right_while_something_prints(tmp_path, transport):
    address = f"127.0.0.1:{free_port()}"
    size = len(COMBINATIONS)
    results = [tmp_path / f"rank{rank}.json" for rank in range(size)]
    started = []
    try:
        for rank, closed in enumerate(COMBINATIONS):
            command = [sys.executable, str(MEMBER), str(rank), str(size), address, transport, str(results[rank])]
            closing = " ".join(f"{number}>&-" for number in sorted(closed))
            started.append(subprocess.Popen(["/bin/sh", "-c", f'exec "$@" {closing}', "sh", *command]))
        statuses = [process.wait(DEADLINE_SECONDS) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert statuses == [0] * size
    for closed, result in zip(COMBINATIONS, results, strict=True):
        assert json.loads(result.read_text()) == {"closed": sorted(closed), "wrong": [], "taken": [], "open": []}
