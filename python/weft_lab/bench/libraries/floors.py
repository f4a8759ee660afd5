"""Floors on one host: lower bounds for any library, measured in turn with the libraries.

`prototype` is a bare all-reduce of two ranks on symmetric memory: two flags, each rank adds its
half of both buffers and writes the sum to both. `add` adds as many vectors as there are ranks and
writes the sum to each, all within a process, the vectors divided among the cores: the memory
traffic of an all-reduce without communication.
"""

from __future__ import annotations

import ctypes
import dataclasses

import numpy as np

import weft
from weft import _weft
from weft_lab.bench.collectives import BenchCollective
from weft_lab.bench.elements import ElementType
from weft_lab.bench.libraries.contender import Contender, Description, TimedOperation, array
from weft_lab.bench.spec import Spec

_SHARE = 0.25


class Prototype(Contender):
    """The bare all-reduce of two ranks."""

    def __init__(self, spec: Spec, rank: int) -> None:
        self._path, self._rank = spec.prototype_path, rank
        self.description = Description("floor", weft.__version__, "prototype", "shm", "floor", 2, costs=False)

    def operation(self, collective: BenchCollective, dtype: ElementType, elements: int) -> TimedOperation:
        """See `Contender`; all-reduce only."""
        assert collective.name == "all-reduce"
        timed = _weft.Timed.prototype(str(self._path), self._rank, dtype.name, elements)
        memory = (ctypes.c_char * (elements * dtype.itemsize)).from_address(timed.pointer)
        buffer = np.frombuffer(memoryview(memory).cast("B"), dtype.storage)
        return TimedOperation(buffer, buffer, timed)


class Copy(Contender):
    """Every core copies a message."""

    def __init__(self, cores: int) -> None:
        self.description = _floor("memcpy", cores)

    def operation(self, _collective: BenchCollective, dtype: ElementType, elements: int) -> TimedOperation:
        """See `Contender`."""
        source, target = array(elements, dtype), array(elements, dtype)
        hold = (source, target)
        timed = _weft.Timed.copy(source.ctypes.data, target.ctypes.data, source.nbytes, hold)
        return TimedOperation(source, None, timed)


class Add(Contender):
    """The cores together add one message of every rank."""

    def __init__(self, cores: int, ranks: int) -> None:
        self._cores, self._ranks = cores, ranks
        self.description = _floor("add", cores)

    def operation(self, _collective: BenchCollective, dtype: ElementType, elements: int) -> TimedOperation:
        """See `Contender`."""
        part = -(-elements // self._cores)
        vectors = array(part * self._ranks, dtype)
        starts = [vectors.ctypes.data + rank * part * dtype.itemsize for rank in range(self._ranks)]
        return TimedOperation(vectors, None, _weft.Timed.add(starts, dtype.name, part, vectors))


class RoundTrip(Contender):
    """From one core to another and back, over bare flags."""

    def __init__(self) -> None:
        floor = _floor("flags", 2)
        self.description = dataclasses.replace(floor, memory="round trip", is_round_trip=True)

    def operation(self, _collective: BenchCollective, dtype: ElementType, _elements: int) -> TimedOperation:
        """See `Contender`; the control block itself times it."""
        nothing = array(1, dtype)
        return TimedOperation(nothing, None, _weft.Timed.copy(nothing.ctypes.data, nothing.ctypes.data, 0, nothing))


def _floor(library: str, cores: int) -> Description:
    memory = f"{cores} core{'s' if cores > 1 else ''}"
    return Description(library, weft.__version__, memory, "none", "floor", cores, _SHARE, costs=False)


def floors(spec: Spec, rank: int, cores: int) -> list[Contender]:
    """The floors of a run on this host."""
    together = min(spec.ranks, cores)
    found: list[Contender] = []
    if spec.collective == "all-reduce" and spec.ranks == 2:
        found.append(Prototype(spec, rank))
    if together >= 2:
        found.append(RoundTrip())
    for count in sorted({1, together}):
        found += [Copy(count), Add(count, spec.ranks)]
    return found
