"""A measuring process (`python -m weft_lab.bench.worker SPEC GROUP`), driven by the coordinator."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import weft
from weft import _weft, config, machine
from weft.processes.local_ranks import die_with_parent
from weft_lab.bench import accuracy, collectives, elements, peers
from weft_lab.bench.libraries import (
    Contender,
    EncryptedWeft,
    Gloo,
    RegisteredWeft,
    ShimLibrary,
    ThroughTorch,
    TimedOperation,
    Weft,
    WeftRing,
    floors,
    tcp_floors,
)
from weft_lab.bench.message_socket import MessageSocket
from weft_lab.bench.spec import GLOO, PIPELINED, POOL, RING, Spec

ROUND_TRIPS = 2000
_NO_RESULT = 99
"""The initial content of outputs, so that no earlier result passes verification."""
_PATTERN_BYTES = 16 * 1024
"""Small enough to stay in the nearest cache: rewriting a message evicts nothing else."""


def main() -> None:
    """Carries out the coordinator's requests until the end."""
    die_with_parent()
    spec, group = Spec.load(Path(sys.argv[1])), sys.argv[2]
    with _joined(spec, group) as (rank, contenders):
        line = MessageSocket.connect(spec.socket_path)
        described = [contender.description.to_value() for contender in contenders]
        line.send({"group": group, "rank": rank, "contenders": described})
        process = MeasuringProcess(spec, group, rank, contenders)
        while (question := line.receive())["do"] != "end":
            line.send(process.answer(question))
        for contender in contenders:
            contender.close()


@contextlib.contextmanager
def _joined(spec: Spec, group: str) -> Iterator[tuple[int, list[Contender]]]:
    """This process's rank in a worker group, and its contenders."""
    if group == "torch":
        with _torch(spec) as joined:
            yield joined
    elif group == "weft":
        with _weft_itself(spec) as joined:
            yield joined
    elif group == GLOO:
        place = config.place()
        address = f"{place.host or '127.0.0.1'}:{spec.ports[1]}"
        yield place.rank, [Gloo(place.rank, spec.ranks, address)]
    else:
        peer = peers.find(group)
        transport = "rdma" if peer.over_rdma else "tcp" if spec.hosts > 1 else "shm"
        library = ShimLibrary(group, peer.shim_path, spec.ranks, transport)
        yield library.rank, [*library.contenders(spec.places)]
        library.finish()


@contextlib.contextmanager
def _weft_itself(spec: Spec) -> Iterator[tuple[int, list[Contender]]]:
    place = config.place()
    init = functools.partial(
        weft.init,
        place.rank,
        spec.ranks,
        address=f"{place.host or '127.0.0.1'}:{spec.ports[0]}",
        transport=spec.transport,
        pool_bytes=spec.pool_bytes,
    )
    with contextlib.ExitStack() as groups:
        # For comparisons, regardless of the environment.
        registration = POOL if spec.registrations else None
        group = groups.enter_context(init(encrypt=False if spec.ciphers else None, registration=registration))
        contenders: list[Contender] = [
            Weft(group, spec.transport, memory, spec.bytes_max, wire, out_of_place=place == "out")
            for wire in ("full", *spec.wires)
            for memory in spec.memories
            for place in spec.places
        ]
        if RING in spec.peers:
            contenders.append(WeftRing(group, spec.transport))
        for cipher in spec.ciphers:
            encrypted = groups.enter_context(init(encrypt=cipher))
            contenders.append(EncryptedWeft(encrypted, spec.transport, cipher))
        for registration in spec.registrations:
            apart = registration == PIPELINED
            known = groups.enter_context(init(registration=PIPELINED)) if apart else group
            contenders.append(RegisteredWeft(known, spec.transport, registration))
        if spec.floors:
            one_host = spec.hosts == 1
            cores = int(machine.usable_cores())
            contenders += floors.floors(spec, place.rank, cores) if one_host else tcp_floors.floors(spec, group)
        yield place.rank, contenders


@contextlib.contextmanager
def _torch(spec: Spec) -> Iterator[tuple[int, list[Contender]]]:
    """Backends of torch, each in a separate process group.

    Weft's settings are in the environment.
    """
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    place = config.place()
    where = f"tcp://{place.host or '127.0.0.1'}:{spec.ports[0]}"
    dist.init_process_group("weft", init_method=where, rank=place.rank, world_size=spec.ranks)
    contenders: list[Contender] = [
        ThroughTorch("weft", spec.transport, memory, wire) for wire in ("full", *spec.wires) for memory in spec.memories
    ]
    contenders += [ThroughTorch(name, "tcp", "ordinary") for name in spec.peers]
    yield place.rank, contenders
    dist.destroy_process_group()


class MeasuringProcess:
    """The state of one measuring process, and its answers."""

    def __init__(self, spec: Spec, group: str, rank: int, contenders: Sequence[Contender]) -> None:
        self._spec = spec
        self._group = group
        self._rank = rank
        self._contenders = contenders
        self._collective = collectives.find(spec.collective)
        self._dtype = elements.find(spec.dtype)
        self._pattern = self._dtype.encoded(collectives.pattern(rank, _PATTERN_BYTES // self._dtype.itemsize))
        self._control_blocks: dict[int, _weft.ControlBlock] = {}
        self._operations: dict[int, TimedOperation] = {}
        self._elements = 0

    def answer(self, question: dict[str, Any]) -> Any:
        """Carries out a request and returns its result."""
        match question["do"]:
            case "prepare":
                return self._prepare(question["elements"])
            case "verify":
                return self._verify(question["contender"])
            case "time":
                return self._time(question["contender"], question["calls"])
            case "cost":
                return self._cost(question["contender"], question["calls"])
            case "stages":
                return self._stages(question["contender"])
        raise ValueError(question)

    def _prepare(self, elements: int) -> bool:
        """Prepares every contender for a size; the arrays of the last one are freed first."""
        self._operations.clear()
        self._elements = elements
        for index, contender in enumerate(self._contenders):
            if self._rank < contender.description.ranks:
                self._operations[index] = contender.operation(self._collective, self._dtype, elements)
        return True

    def _verify(self, index: int) -> int:
        """The number of wrong elements in this rank's result, if it gets any.

        In a wire format, those outside the format's bound of the error.
        """
        operation, wire = self._operations[index], self._contenders[index].description.wire
        expected = self._collective.expected(self._rank, self._spec.ranks, self._elements)
        if operation.output is not None and operation.output is not operation.input:
            operation.output.fill(_NO_RESULT)
        self._timed(index, 1)
        if operation.output is None or expected is None:
            return 0
        if wire == "full":
            return int(np.count_nonzero(operation.output != self._dtype.encoded(expected)))
        bound = accuracy.error_bound(wire, self._collective, self._spec.ranks, expected)
        return int(np.count_nonzero(~(np.abs(operation.output.astype(np.float64) - expected) <= bound)))

    def _time(self, index: int, calls: int) -> dict[str, Any]:
        """The slowest rank's seconds of every call, on rank 0, and the total time."""
        begin = time.monotonic()
        samples = self._timed(index, calls)
        return {"samples": samples if self._rank == 0 else [], "seconds": time.monotonic() - begin}

    def _cost(self, index: int, calls: int) -> dict[str, float]:
        """The seconds of calls made one after the other, of this rank and of the machine.

        Nothing is rewritten between them; zeros stay zeros under any number of additions.
        """
        operation = self._operations[index]
        operation.input.fill(0)
        control_block = self._control_block(self._contenders[index].description.ranks)
        wall, process, busy = control_block.cost(operation.timed, calls)
        return {"wall": wall, "process": process, "busy": busy}

    def _stages(self, index: int) -> list[tuple[str, int, int, int, int, int]]:
        """The stages of rank 0 with the tiles of one call of weft."""
        contender = self._contenders[index]
        assert isinstance(contender, Weft), "other contenders have no stages"
        native = contender.group.native
        native.trace_stages(True)
        self._timed(index, 1)
        native.trace_stages(False)
        return native.take_stages() if self._rank == 0 else []

    def _timed(self, index: int, calls: int) -> list[float]:
        description, operation = self._contenders[index].description, self._operations[index]
        control_block = self._control_block(description.ranks)
        if description.is_round_trip:
            return [control_block.round_trip(ROUND_TRIPS) for _ in range(calls)]
        buffer = operation.input
        return control_block.time(operation.timed, buffer.ctypes.data, buffer.nbytes, self._pattern.tobytes(), calls)

    def _control_block(self, ranks: int) -> _weft.ControlBlock:
        if ranks not in self._control_blocks:
            path = self._spec.control_block_path(self._group, ranks)
            self._control_blocks[ranks] = _weft.ControlBlock(
                str(path), self._rank, ranks, spin=ranks <= machine.usable_cores()
            )
        return self._control_blocks[ranks]


if __name__ == "__main__":
    main()
