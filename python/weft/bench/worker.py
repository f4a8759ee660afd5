"""One measuring process: `python -m weft.bench.worker SPEC`."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import weft
from weft import config, machine
from weft.bench import collectives, rows
from weft.bench.board import SAMPLES_MAX, Board
from weft.bench.libraries import PEERS, THROUGH_TORCH, Contender, Meeting, ThroughTorch, Weft
from weft.bench.libraries.contender import Operation
from weft.bench.spec import Spec
from weft.emulation import kernel

ROUNDS = 5
"""Contenders take turns this many times at each size."""
CALLS_MIN = 3
"""Fewest calls in one turn."""
WARM_UP_CALLS = 3


def main() -> None:
    """Measures everything that the specification asks for; rank 0 writes the rows."""
    kernel.die_with_parent()
    spec = Spec.load(Path(sys.argv[1]))
    place = config.place()
    rank, host = place.rank, place.host or "127.0.0.1"
    board = Board(spec.board_path, rank, spec.ranks, spin=spec.ranks <= machine.usable_cores())
    meetings = [Meeting(rank, spec.ranks, host, port) for port in spec.ports]
    with (_through_torch if spec.through == "torch" else _through_python)(spec, meetings) as contenders:
        run = Run(spec, rank, board, contenders)
        for size in spec.sizes:
            run.measure_size(size)
        for contender in contenders:
            contender.close()


@contextlib.contextmanager
def _through_python(spec: Spec, meetings: Sequence[Meeting]) -> Iterator[list[Contender]]:
    """The libraries themselves, each with a port to meet at."""
    meeting = meetings[0]
    with weft.init(
        meeting.rank,
        spec.ranks,
        address=f"{meeting.host}:{meeting.port}",
        transport=spec.transport,
        pool_bytes=spec.pool_bytes,
    ) as group:
        contenders: list[Contender] = [Weft(group, spec.transport, memory, max(spec.sizes)) for memory in spec.memories]
        contenders += [PEERS[name](meeting) for name, meeting in zip(spec.peers, meetings[1:], strict=True)]
        yield contenders


@contextlib.contextmanager
def _through_torch(spec: Spec, meetings: Sequence[Meeting]) -> Iterator[list[Contender]]:
    """Backends of torch, each in a process group of its own; weft's settings are in the environment."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    meeting = meetings[0]
    where = f"tcp://{meeting.host}:{meeting.port}"
    dist.init_process_group("weft", init_method=where, rank=meeting.rank, world_size=spec.ranks)
    transports = {"weft": spec.transport, **THROUGH_TORCH}
    yield [ThroughTorch(backend, transports[backend]) for backend in ("weft", *spec.peers)]
    dist.destroy_process_group()


class Run:
    """The state of one measuring process."""

    def __init__(self, spec: Spec, rank: int, board: Board, contenders: Sequence[Contender]) -> None:
        self._spec = spec
        self._rank = rank
        self._board = board
        self._contenders = contenders
        self._collective = collectives.find(spec.collective)
        self._dtype = np.dtype(spec.dtype)

    def measure_size(self, size: int) -> None:
        """Verifies every contender once, then measures them in turn."""
        ranks = self._spec.ranks
        elements = max(1, size // self._dtype.itemsize // ranks) * ranks
        if self._collective.in_place:
            elements = max(1, size // self._dtype.itemsize)
        operations = [c.operation(self._collective, self._dtype, elements) for c in self._contenders]
        fill = collectives.pattern(self._rank, len(operations[0].input)).astype(self._dtype)
        verified = [self._verify(operation, fill, elements) for operation in operations]
        counts = [self._calibrate(operation, fill) for operation in operations]
        samples: list[list[np.ndarray]] = [[] for _ in operations]
        for turn in range(ROUNDS):
            for offset in range(len(operations)):
                index = (turn + offset) % len(operations)
                samples[index].append(self._timed(operations[index], fill, counts[index]))
        if self._rank == 0:
            for contender, times, right in zip(self._contenders, samples, verified, strict=True):
                self._write(contender, elements * self._dtype.itemsize, np.concatenate(times), right)

    def _verify(self, operation: Operation, fill: np.ndarray, elements: int) -> bool:
        """Whether every rank has the right result, in every element."""
        np.copyto(operation.input, fill)
        operation.call()
        expected = self._collective.expected(self._rank, self._spec.ranks, elements).astype(self._dtype)
        wrong = not np.array_equal(operation.output, expected)
        return not self._board.slowest(np.array([float(wrong)]))[0]

    def _calibrate(self, operation: Operation, fill: np.ndarray) -> int:
        """How many calls make a turn."""
        typical_s = float(np.median(self._timed(operation, fill, WARM_UP_CALLS)))
        calls = int(self._spec.seconds / ROUNDS / max(typical_s, 1e-7))
        return self._board.agree(min(max(calls, CALLS_MIN), SAMPLES_MAX))

    def _timed(self, operation: Operation, fill: np.ndarray, calls: int) -> np.ndarray:
        """The slowest rank's time of every call. Before each, every rank rewrites its whole input."""
        barrier, clock, call, buffer = self._board.barrier, time.perf_counter, operation.call, operation.input
        times = np.empty(calls)
        for index in range(calls):
            np.copyto(buffer, fill)
            barrier()
            begin = clock()
            call()
            times[index] = clock() - begin
        return self._board.slowest(times)

    def _write(self, contender: Contender, size: int, times_s: np.ndarray, verified: bool) -> None:
        spec = self._spec
        algorithm_gbs = size / float(np.median(times_s)) / 1e9
        row = rows.Row(
            collective=spec.collective,
            transport=contender.transport,
            memory=contender.memory,
            dtype=spec.dtype,
            ranks=spec.ranks,
            hosts=spec.hosts,
            gbps=spec.gbps,
            bytes=size,
            library=contender.library,
            version=contender.version,
            samples=len(times_s),
            **rows.summary(times_s),
            algbw_gbs=round(algorithm_gbs, 6),
            busbw_gbs=round(algorithm_gbs * self._collective.bus_factor(spec.ranks), 6),
            verified=verified,
        )
        rows.append(spec.rows_path, row)


if __name__ == "__main__":
    main()
