"""Ranks forked from one interpreter: their meeting and first all-reduces, with times and memory."""

from __future__ import annotations

import json
import os
import resource
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

import weft
from weft.processes.ports import free_ports

PHASES = ("meeting and links", "all-reduce of 4 KB", "all-reduce of 1 MB")


@dataclass
class RankStart:
    """One rank's start. Times are in seconds since the first rank was forked."""

    rank: int
    began: float = 0.0
    ended: list[float] = field(default_factory=list)
    """When it had done each of `PHASES`."""
    processor: list[float] = field(default_factory=list)
    """Seconds of a processor that each of them took."""
    descriptors: int = 0
    """Those that weft has opened."""
    shared_kib: int = 0
    """Pages of its own and its peers' pools that it maps, when all is done."""
    failure: str | None = None


def start(count: int, timeout: float) -> list[RankStart]:
    """Forks this many ranks, and returns the report of each, in order.

    Args:
        count: The number of ranks.
        timeout: The time for each to meet the others, and for each sum, in seconds.
    """
    port = free_ports(1)[0]
    origin = time.monotonic()
    children = [_fork(rank, count, port, origin, timeout) for rank in range(count)]
    reports = [_read(pipe) for _, pipe in children]
    for pid, _ in children:
        os.waitpid(pid, 0)
    return [
        RankStart(**json.loads(text)) if text else RankStart(rank, failure="it ended without a word")
        for rank, text in enumerate(reports)
    ]


def _fork(rank: int, count: int, port: int, origin: float, timeout: float) -> tuple[int, int]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    outcome = RankStart(rank)
    try:
        _run(outcome, count, port, origin, timeout, writing)
    except BaseException:
        outcome.failure = traceback.format_exc()
        os.write(writing, json.dumps(asdict(outcome)).encode())
    finally:
        os._exit(0)


def _run(outcome: RankStart, count: int, port: int, origin: float, timeout: float, writing: int) -> None:
    @contextmanager
    def phase() -> Iterator[None]:
        before = _processor_seconds()
        yield
        outcome.ended.append(time.monotonic() - origin)
        outcome.processor.append(_processor_seconds() - before)

    inherited = _descriptors()
    outcome.began = time.monotonic() - origin
    with phase():
        group = weft.init(outcome.rank, count, address=f"127.0.0.1:{port}", timeout=timeout)
    for elements in (1 << 10, 1 << 18):
        numbers = np.ones(elements, dtype=np.float32)
        with phase():
            group.all_reduce(numbers)
        assert (numbers == count).all(), numbers
    outcome.descriptors = _descriptors() - inherited
    outcome.shared_kib = _shared_kib()
    os.write(writing, json.dumps(asdict(outcome)).encode())
    os.close(writing)
    # No rank leaves before all have received their results.
    group.barrier()


def _read(pipe: int) -> bytes:
    with os.fdopen(pipe, "rb") as reader:
        return reader.read()


def _descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _shared_kib() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "RssShmem":
            return int(value.split()[0])
    return 0
