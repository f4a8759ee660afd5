"""Predicted times of a group's operations, which are not carried out meanwhile.

Each is simulated by the algorithm that the group would use, on the machine that `weft tune` has
measured for ranks placed like these; without a profile, on the simulator's own.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from weft import _weft, config
from weft.api.request import PreparedCall
from weft.selection import measured_machine

__all__ = ["TimeEstimate", "on_cpu"]

_OF_BLOCKS = {"all-gather", "reduce-scatter", "gather", "scatter", "all-to-all"}
"""The collectives whose messages are a block for each rank."""


_BYTES_MIN = 4
"""Of a simulated message."""


class TimeEstimate:
    """The time that calls of a group would take, one after the other."""

    def __init__(self, group: _weft.Group) -> None:
        from weft import planning
        from weft.simulation.machine import Machine

        self.seconds = 0.0
        self._group = group
        hosts = planning.topology_of(group).ranks_per_host
        parameters = measured_machine(config.load().profile, group.hosts(), group.domains())
        self._machine = Machine(group.size, hosts, parameters=parameters)
        self._predicted = functools.cache(self._predict)

    def add(self, calls: Sequence[PreparedCall]) -> None:
        """Adds the predicted times of calls."""
        for one in calls:
            stated = one.request.stated()
            memory = one.source or (None if one.target is None else one.target.array)
            itemsize = 1 if memory is None else memory.dtype.itemsize
            elements = _elements(stated["counts"], self._group.size, of_blocks=stated["collective"] in _OF_BLOCKS)
            self.seconds += self._predicted(stated["collective"], elements * itemsize, stated["dtype"], stated["root"])

    def _predict(self, collective: str, nbytes: int, dtype: str, root: int | None) -> float:
        from weft import planning
        from weft.schedule.schedule import Schedule
        from weft.simulation.simulator import simulate

        if self._group.size == 1:
            return 0.0
        plan = planning.plan(self._group, collective, nbytes, dtype, symmetric=False)
        own = {} if plan._schedule is None else {plan.name: Schedule(plan._schedule)}
        names = [] if own else [plan.name]
        (row,) = simulate(self._machine, [max(nbytes, _BYTES_MIN)], collective, names, root=root, schedules=own)
        return row.times_s[0]


def on_cpu(value: Any) -> Any:
    """Tensors of the CPU with the form of these, which may be in lists; other values unchanged."""
    if isinstance(value, (list, tuple)):
        return list(map(on_cpu, value))
    if isinstance(value, Tensor) and not value.is_cpu:
        return torch.empty_like(value, device="cpu")
    return value


def _elements(counts: Any, ranks: int, *, of_blocks: bool) -> int:
    """The elements of a whole message, all blocks together."""
    if isinstance(counts, int):
        return counts * ranks if of_blocks else counts
    if isinstance(counts, tuple):
        return max(map(sum, counts))
    return sum(counts)
