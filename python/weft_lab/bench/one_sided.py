"""Measurement of one-sided operations: put, put with a signal, and get between two ranks.

Unlike for collectives, calls of the Python API are timed, since programs make these calls from
Python.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import weft
from weft.api.symmetric import SymmetricArray
from weft.output import files
from weft.processes.ports import free_ports
from weft.quantities import show_bytes
from weft_lab import console
from weft_lab.bench import launch, processes, rows
from weft_lab.bench.rows import BenchRow

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["NAME", "OPERATIONS", "RANKS", "OneSidedSpec", "measure", "table"]

NAME = "put"
OPERATIONS = ("put", "put-signal", "get")
RANKS = 2
_CALLS_MIN = 10
_CALLS_MAX = 20_000
_MODULUS = 251
"""A prime below 256: patterns of neighbouring rounds differ in every byte."""


@dataclasses.dataclass(frozen=True)
class OneSidedSpec:
    """The measurement to make."""

    sizes: list[int]
    transport: str
    hosts: int
    gbps: float | None
    delay_ms: float | None
    seconds: float
    """Seconds of each operation at each size, unless the fewest calls take longer."""
    iterations: int | None
    """The number of measured calls, which replaces `seconds`."""
    warmup: int
    """The number of calls before those."""
    rounds: int


def measure(spec: OneSidedSpec) -> list[BenchRow]:
    """Starts both ranks, and returns a row for each size and operation."""
    with launch.shared_directory() as directory:
        asked, found = Path(directory, "spec.json"), Path(directory, "rows.json")
        files.write(asked, json.dumps(dataclasses.asdict(spec)))
        ports = launch.emulated_ports(1) if spec.hosts > 1 else free_ports(1)
        ranks = processes.RankProcesses(
            program=["-m", "weft_lab.bench.one_sided", str(asked), str(found)],
            ranks=RANKS,
            port=ports[0],
            hosts=spec.hosts,
            gbps=spec.gbps,
            delay_ms=spec.delay_ms,
            shared=[directory],
        )
        processes.run(ranks)
        return rows.read(found)


class _Pair:
    """Both ranks' memory at one size: rank 0 acts on rank 1's part, in a ping-pong both do."""

    def __init__(self, group: weft.Group, size: int) -> None:
        self._group = group
        self._peer = 1 - group.rank
        self._buffer: SymmetricArray = group.symmetric(size, np.uint8, signals=1, name="bench")
        self._sent = np.empty(size, np.uint8)
        self._received = np.zeros(size, np.uint8)
        self._places = np.arange(size) % _MODULUS
        self._turns = 0
        self._number = 0

    def free(self) -> None:
        """Frees the memory."""
        self._group.barrier()
        self._buffer.free()

    def turn(self, operation: str, calls: int) -> tuple[float, int]:
        """Seconds per call on rank 0, and the number of wrong bytes on both ranks."""
        call, wrote, times = self._prepared(operation)
        self._group.barrier()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        seconds = (time.perf_counter() - begin) / (times * calls)
        self._group.barrier()
        wrong = int(np.count_nonzero(wrote != self._pattern(self._peer))) if wrote is not None else 0
        summed = np.array([wrong], np.int64)
        self._group.all_reduce(summed)
        return seconds, int(summed[0])

    def _prepared(self, operation: str) -> tuple[Callable[[], None], np.ndarray | None, int]:
        """A rank's function for a turn, the expected contents of its memory, and the calls in each.

        Sources have a new pattern in every turn, so that data of an earlier one are wrong.
        """
        first = self._group.rank == 0
        self._turns += 1
        self._sent[...] = self._pattern(self._group.rank)
        if operation == "put-signal":
            return self._ping_pong, self._buffer, 2
        if operation == "put":
            return (self._put, None, 1) if first else (_nothing, self._buffer, 1)
        self._buffer[...] = self._sent
        return (self._get, self._received, 1) if first else (_nothing, None, 1)

    def _pattern(self, rank: int) -> np.ndarray:
        """The source of a rank in this turn."""
        return (self._places + 2 * self._turns + rank) % _MODULUS

    def _put(self) -> None:
        self._buffer.put(self._peer, self._sent)
        self._buffer.quiet()

    def _get(self) -> None:
        self._buffer.get(self._peer, out=self._received)

    def _ping_pong(self) -> None:
        self._number += 1
        if self._group.rank == 0:
            self._buffer.put_signal(self._peer, self._sent)
        self._buffer.wait_signal(value=self._number)
        if self._group.rank == 1:
            self._buffer.put_signal(self._peer, self._sent)


def _nothing() -> None:
    """The function of a rank whose part is accessed: does nothing."""


def _rank(spec: OneSidedSpec, found: Path) -> None:
    """The program of a rank; the first writes the rows."""
    measured: list[BenchRow] = []
    with weft.init(transport=spec.transport) as group:
        for size in spec.sizes:
            pair = _Pair(group, size)
            measured += [_row(group, pair, spec, size, operation) for operation in OPERATIONS]
            pair.free()
        if group.rank == 0:
            rows.write(found, measured)


def _row(group: weft.Group, pair: _Pair, spec: OneSidedSpec, size: int, operation: str) -> BenchRow:
    if spec.warmup:
        pair.turn(operation, spec.warmup)
    calls = _calls(group, pair, spec, operation)
    turns = [pair.turn(operation, calls) for _ in range(spec.rounds)]
    summary = rows.summary([np.array([seconds]) for seconds, _ in turns])
    wrong = sum(wrong for _, wrong in turns)
    rate = round(size / summary.median_us / 1e3, 4)
    return BenchRow(
        collective=operation,
        transport=group.native.transport(1 - group.rank) or spec.transport,
        memory="ordinary",
        dtype="uint8",
        ranks=RANKS,
        hosts=spec.hosts,
        gbps=spec.gbps,
        bytes=size,
        library="weft",
        version=weft.__version__,
        samples=calls * spec.rounds,
        min_us=summary.min_us,
        median_us=summary.median_us,
        p95_us=summary.p95_us,
        algbw_gbs=rate,
        busbw_gbs=rate,
        verified=wrong == 0,
        kind="weft",
        rounds_us=summary.rounds_us,
        delay_ms=spec.delay_ms,
        wrong=wrong,
    )


def _calls(group: weft.Group, pair: _Pair, spec: OneSidedSpec, operation: str) -> int:
    """How many calls each turn has, as rank 0 decides after a few."""
    if spec.iterations is not None:
        decided = -(-spec.iterations // spec.rounds)
    else:
        pair.turn(operation, _CALLS_MIN)
        seconds, _ = pair.turn(operation, _CALLS_MIN)
        wanted = spec.seconds / spec.rounds / max(seconds, 1e-9)
        decided = int(min(max(wanted, _CALLS_MIN), _CALLS_MAX))
    calls = np.array([decided], np.int64)
    group.broadcast(calls)
    return int(calls[0])


def table(found: Sequence[BenchRow]) -> tuple[str, Table]:
    """A title and a table: an operation's times at each size."""
    first = found[0]
    where = "one host" if first.hosts == 1 else f"{first.hosts} emulated hosts"
    title = f"\none-sided operations, {RANKS} ranks on {where}, over {first.transport}, through the Python API"
    columns = (">bytes", "operation", ">min us", ">median us", ">spread", ">GB/s", ">#wrong")
    shown = console.new_table(*columns)
    for row in found:
        shown.add_row(
            show_bytes(row.bytes),
            row.collective,
            f"{row.min_us:.2f}",
            f"{row.median_us:.2f}",
            f"{row.spread:.1%}",
            f"{row.algbw_gbs:.3f}",
            str(row.wrong),
            style=None if row.verified else "bold red",
        )
    return title, shown


if __name__ == "__main__":
    _rank(OneSidedSpec(**json.loads(Path(sys.argv[1]).read_text())), Path(sys.argv[2]))
