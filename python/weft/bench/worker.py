"""One measuring process: `python -m weft.bench.worker SPEC TEAM`. It does what the conducting process says."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import weft
from weft import _weft, config, machine
from weft.bench import collectives, peers
from weft.bench.libraries import Contender, Gloo, Operation, Shim, ThroughTorch, Weft, WeftRing, floors
from weft.bench.spec import RING, Spec
from weft.bench.wire import Line
from weft.emulation import kernel

ROUND_TRIPS = 2000
_NO_RESULT = 99
"""What lies in outputs before they are verified, so that no earlier result passes."""
_PATTERN_BYTES = 16 * 1024
"""Small enough to stay in the nearest cache: rewriting a message drives nothing else out."""


def main() -> None:
    """Measures what it is told to, until it is told to end."""
    kernel.die_with_parent()
    spec, team = Spec.load(Path(sys.argv[1])), sys.argv[2]
    with _joined(spec, team) as (rank, contenders):
        line = Line.connect(spec.socket_path)
        described = [contender.description.to_value() for contender in contenders]
        line.send({"team": team, "rank": rank, "contenders": described})
        desk = Desk(spec, team, rank, contenders)
        while (question := line.receive())["do"] != "end":
            line.send(desk.answer(question))
        for contender in contenders:
            contender.close()


@contextlib.contextmanager
def _joined(spec: Spec, team: str) -> Iterator[tuple[int, list[Contender]]]:
    """This process's rank in a team, and the contenders that it carries."""
    if team == "torch":
        with _torch(spec) as joined:
            yield joined
    elif team == "weft":
        with _weft_itself(spec) as joined:
            yield joined
    elif team == "gloo":
        place = config.place()
        address = f"{place.host or '127.0.0.1'}:{spec.ports[1]}"
        yield place.rank, [Gloo(place.rank, spec.ranks, address)]
    else:
        shim = Shim(team, peers.find(team).shim_path, spec.ranks)
        yield shim.rank, [shim]


@contextlib.contextmanager
def _weft_itself(spec: Spec) -> Iterator[tuple[int, list[Contender]]]:
    place = config.place()
    with weft.init(
        place.rank,
        spec.ranks,
        address=f"{place.host or '127.0.0.1'}:{spec.ports[0]}",
        transport=spec.transport,
        pool_bytes=spec.pool_bytes,
    ) as group:
        contenders: list[Contender] = [Weft(group, spec.transport, memory, spec.bytes_max) for memory in spec.memories]
        if RING in spec.peers:
            contenders.append(WeftRing(group, spec.transport))
        if spec.floors:
            contenders += floors(spec, place.rank, int(machine.usable_cores()))
        yield place.rank, contenders


@contextlib.contextmanager
def _torch(spec: Spec) -> Iterator[tuple[int, list[Contender]]]:
    """Backends of torch, each in a process group of its own; weft's settings are in the environment."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    place = config.place()
    where = f"tcp://{place.host or '127.0.0.1'}:{spec.ports[0]}"
    dist.init_process_group("weft", init_method=where, rank=place.rank, world_size=spec.ranks)
    contenders: list[Contender] = [ThroughTorch("weft", spec.transport, memory) for memory in spec.memories]
    contenders += [ThroughTorch(name, "tcp", "ordinary") for name in spec.peers]
    yield place.rank, contenders
    dist.destroy_process_group()


class Desk:
    """What one measuring process knows, and how it answers."""

    def __init__(self, spec: Spec, team: str, rank: int, contenders: Sequence[Contender]) -> None:
        self._spec = spec
        self._team = team
        self._rank = rank
        self._contenders = contenders
        self._collective = collectives.find(spec.collective)
        self._dtype = np.dtype(spec.dtype)
        self._pattern = collectives.pattern(rank, _PATTERN_BYTES // self._dtype.itemsize).astype(self._dtype)
        self._boards: dict[int, _weft.Board] = {}
        self._operations: dict[int, Operation] = {}
        self._elements = 0

    def answer(self, question: dict[str, Any]) -> Any:
        """Does what is asked for, and says what came of it."""
        match question["do"]:
            case "prepare":
                return self._prepare(question["elements"])
            case "verify":
                return self._verify(question["contender"])
            case "time":
                return self._time(question["contender"], question["calls"])
        raise ValueError(question)

    def _prepare(self, elements: int) -> bool:
        """Makes every contender ready for a size; the arrays of the last one go first."""
        self._operations.clear()
        self._elements = elements
        for index, contender in enumerate(self._contenders):
            if self._rank < contender.description.ranks:
                self._operations[index] = contender.operation(self._collective, self._dtype, elements)
        return True

    def _verify(self, index: int) -> bool:
        """Whether this rank has the right result, in every element, where it gets any."""
        operation = self._operations[index]
        expected = self._collective.expected(self._rank, self._spec.ranks, self._elements)
        if operation.output is not None and operation.output is not operation.input:
            operation.output.fill(_NO_RESULT)
        self._timed(index, 1)
        if operation.output is None or expected is None:
            return True
        return np.array_equal(operation.output, expected)

    def _time(self, index: int, calls: int) -> dict[str, Any]:
        """The slowest rank's seconds of every call, as rank 0 says them, and how long all of it took."""
        begin = time.monotonic()
        samples = self._timed(index, calls)
        return {"samples": samples if self._rank == 0 else [], "seconds": time.monotonic() - begin}

    def _timed(self, index: int, calls: int) -> list[float]:
        description, operation = self._contenders[index].description, self._operations[index]
        board = self._board(description.ranks)
        if description.is_round_trip:
            return [board.round_trip(ROUND_TRIPS) for _ in range(calls)]
        buffer = operation.input
        return board.time(operation.timed, buffer.ctypes.data, buffer.nbytes, self._pattern.tobytes(), calls)

    def _board(self, ranks: int) -> _weft.Board:
        if ranks not in self._boards:
            path = self._spec.board_path(self._team, ranks)
            self._boards[ranks] = _weft.Board(str(path), self._rank, ranks, spin=ranks <= machine.usable_cores())
        return self._boards[ranks]


if __name__ == "__main__":
    main()
