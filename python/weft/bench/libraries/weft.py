"""weft itself, on ordinary or symmetric memory."""

from __future__ import annotations

import numpy as np

import weft
from weft.bench.collectives import Collective
from weft.bench.libraries.contender import Contender, Operation, lengths


class Weft(Contender):
    """weft on one kind of memory. Contenders on different kinds share the group."""

    library = "weft"
    version = weft.__version__

    def __init__(self, group: weft.Group, transport: str, memory: str, bytes_max: int) -> None:
        self._group = group
        self.transport = transport
        self.memory = memory
        # Symmetric memory lives as long as the group: it is taken once, at the largest size.
        symmetric = memory == "symmetric"
        self._arena = group.symmetric(2 * (bytes_max + 64), np.uint8) if symmetric else None

    def operation(self, collective: Collective, dtype: np.dtype, elements: int) -> Operation:
        """See `Contender`."""
        count_in, count_out = lengths(collective, elements, self._group.size)
        source = self._array(0, count_in, dtype)
        target = source if collective.in_place else self._array(1, count_out, dtype)
        group = self._group
        calls = {
            "all-reduce": lambda: group.all_reduce(source),
            "broadcast": lambda: group.broadcast(source, 0),
            "all-gather": lambda: group.all_gather_into(target, source),
            "reduce-scatter": lambda: group.reduce_scatter(target, source),
        }
        return Operation(source, target, calls[collective.name])

    def close(self) -> None:
        """The group belongs to whoever made it."""
        self._arena = None

    def _array(self, half: int, elements: int, dtype: np.dtype) -> np.ndarray:
        if self._arena is None:
            return np.empty(elements, dtype)
        begin = half * (len(self._arena) // 2)
        return self._arena[begin : begin + elements * dtype.itemsize].view(dtype)
