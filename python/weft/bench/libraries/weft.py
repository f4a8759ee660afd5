"""weft itself, on ordinary or symmetric memory, as a Rust user calls it."""

from __future__ import annotations

import numpy as np

import weft
from weft import _weft
from weft.bench.collectives import Collective
from weft.bench.libraries.contender import Contender, Description, Operation, lengths, ordinary


class Weft(Contender):
    """weft on one kind of memory. Contenders on different kinds share the group."""

    def __init__(self, group: weft.Group, transport: str, memory: str, bytes_max: int) -> None:
        self._group = group
        self.description = Description("weft", weft.__version__, memory, transport, "weft", group.size)
        # Symmetric memory lives as long as the group: it is taken once, at the largest size.
        symmetric = memory == "symmetric"
        self._arena = group.symmetric(2 * (bytes_max + 4096), np.uint8) if symmetric else None

    def operation(self, collective: Collective, dtype: np.dtype, elements: int) -> Operation:
        """See `Contender`."""
        ranks = self._group.size
        if self._arena is None:
            source, target = ordinary(collective, dtype, elements, ranks)
        else:
            count_in, count_out = lengths(collective, elements, ranks)
            source = _part(self._arena, 0, count_in, dtype)
            target = source if collective.in_place else _part(self._arena, 1, count_out, dtype)
        # The runtime counts what a rank brings, or takes if that is less.
        count = elements if collective.in_place else elements // ranks
        hold = (source, target)
        timed = _weft.Timed.group(
            self._group.native, collective.name, dtype.name, source.ctypes.data, target.ctypes.data, count, None, hold
        )
        return Operation(source, target, timed)


def _part(arena: np.ndarray, half: int, elements: int, dtype: np.dtype) -> np.ndarray:
    begin = half * (len(arena) // 2)
    return arena[begin : begin + elements * dtype.itemsize].view(dtype)
