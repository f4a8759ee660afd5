"""weft itself, by memory and wire format, at the level of the Rust API."""

from __future__ import annotations

import dataclasses

import numpy as np

import weft
from weft import _weft
from weft.datatypes.operations import native_operation
from weft_lab.bench.collectives import BARRIER, PING_PONG, BenchCollective, partner
from weft_lab.bench.elements import ElementType
from weft_lab.bench.libraries.contender import Contender, Description, TimedOperation, lengths, ordinary
from weft_lab.bench.spec import HANDLE, PER_CALL, RING


class Weft(Contender):
    """weft on one kind of memory, in one wire format. Its contenders share the group."""

    def __init__(
        self,
        group: weft.Group,
        transport: str,
        memory: str,
        bytes_max: int,
        wire: str = "full",
        *,
        out_of_place: bool = False,
    ) -> None:
        self._group = group
        self.description = Description(
            "weft",
            weft.__version__,
            memory,
            transport,
            "weft",
            group.size,
            wire=wire,
            out_of_place=out_of_place,
        )
        self._way: tuple[str | None, int | None] = None, None
        # Symmetric memory lives as long as the group: it is allocated once, at the largest size.
        self._arena = group.symmetric(bytes_max, np.uint8) if memory == "symmetric" else None

    @property
    def group(self) -> weft.Group:
        """Its group."""
        return self._group

    def operation(self, collective: BenchCollective, dtype: ElementType, elements: int) -> TimedOperation:
        """See `Contender`."""
        ranks = self._group.size
        if self.description.out_of_place:
            collective = dataclasses.replace(collective, in_place=False)
        algorithm, tiles_in_flight = self._way
        if self._arena is None:
            source, target = ordinary(collective, dtype, elements, ranks)
        else:
            count_in, count_out = lengths(collective, elements, ranks)
            source = self._arena[: count_in * dtype.itemsize].view(dtype.storage)
            target = source
            if not collective.in_place:
                target = self._arena[-count_out * dtype.itemsize :].view(dtype.storage)
        if collective.name == PING_PONG:
            other = partner(self._group.rank, ranks)
            timed = _weft.Timed.ping_pong(
                self._group.native, other, source.ctypes.data, target.ctypes.data, source.nbytes, (source, target)
            )
            return TimedOperation(source, target, timed)
        # The runtime counts the elements that a rank contributes, or receives if that is less.
        count = 0 if collective.name == BARRIER else collective.count(elements, ranks)
        kind = native_operation(collective.name, dtype.name, dtype.itemsize)
        request = _weft.Request(kind, count, source.ctypes.data, target.ctypes.data)
        hold, registered = self._registered(source, target)
        timed = _weft.Timed.group(
            self._group.native,
            request,
            hold,
            registered,
            algorithm=algorithm,
            tiles_in_flight=tiles_in_flight,
            wire=self.description.wire,
        )
        return TimedOperation(source, target, timed)

    def _registered(self, source: np.ndarray, target: np.ndarray) -> tuple[object, list[tuple[int, int]]]:
        """The objects to keep with the arrays, and the memory to register for each call."""
        return (source, target), []


class WeftRing(Weft):
    """Baidu's ring as one of weft's schedules.

    Ordinary memory, one tile after the other, without overlap.
    """

    def __init__(self, group: weft.Group, transport: str) -> None:
        super().__init__(group, transport, "ordinary", 0)
        self._way = "ring", 1
        self.description = Description(RING, weft.__version__, "ordinary", transport, "peer", group.size)


class EncryptedWeft(Weft):
    """weft on ordinary memory over encrypted links, in a separate group.

    It is a peer, so that its time is shown as a multiple of that without encryption.
    """

    def __init__(self, group: weft.Group, transport: str, cipher: str) -> None:
        super().__init__(group, transport, "ordinary", 0)
        self.description = Description(f"weft-{cipher}", weft.__version__, "ordinary", transport, "peer", group.size)


class RegisteredWeft(Weft):
    """weft on ordinary memory that adapters do not read by a copy in the pool.

    It is a peer, so that its time is shown as a multiple of that from the pool.
    """

    def __init__(self, group: weft.Group, transport: str, registration: str) -> None:
        super().__init__(group, transport, "ordinary", 0)
        self._registration = registration
        name = f"weft-{registration}"
        self.description = Description(name, weft.__version__, "ordinary", transport, "peer", group.size)

    def _registered(self, source: np.ndarray, target: np.ndarray) -> tuple[object, list[tuple[int, int]]]:
        arrays = [source] if source is target else [source, target]
        if self._registration == HANDLE:
            return (arrays, [self._group.register(array) for array in arrays]), []
        if self._registration == PER_CALL:
            return arrays, [(array.ctypes.data, array.nbytes) for array in arrays]
        return arrays, []
