"""Changes between a step and its deferred update.

[Note: Late changes] A deferred update must find its parameters, their gradients and their state as
`step` has left them. Changes by way of the model, of `param_groups` or of the optimizer's state
carry it out first. Changes through references that the program has kept are in memory when weft
first looks, and no order of the two is possible any more. Every change in place raises a tensor's
version, and a tensor that was replaced has another address: so `step` notes both, and the update
compares. The noted tensors are held until then, so that no address is used again. A change that
affects neither, such as one by a NumPy view, cannot be detected.
"""

from __future__ import annotations

import operator
from bisect import bisect
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, repeat
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from weft.errors import UnsupportedError
from weft.torch.patches.modes import outside_of_modes

if TYPE_CHECKING:
    from weft.torch.parallel.buckets import Slot

__all__ = ["Noted", "share_memory"]

_version: Any = torch.Tensor._version.__get__  # type: ignore[attr-defined]
_address = torch.Tensor.data_ptr
_OF_GRADIENTS, _OF_STATE = (2, 3), 4
"""The places of notes about gradients, and the first about states."""
_NO_STATE: dict[str, Any] = {}


class Noted:
    """Versions and addresses of the inputs and outputs of an update: see [Note: Late changes].

    All loops are in builtin functions, as this is done for every parameter in every step.
    """

    def __init__(self, slots: Sequence[Slot], optimizer: Optimizer) -> None:
        """Notes the present state. The gradients of the slots were taken."""
        self._slots = slots
        self._optimizer = optimizer
        self._parameters = list(map(operator.attrgetter("parameter"), slots))
        self._gradients = list(map(operator.attrgetter("taken_gradient"), slots))
        self._held, self._before = self._now()

    def check(self) -> None:
        """Raises `weft.UnsupportedError`, with the parameter's name, if something has changed."""
        _, now = self._now()
        if now != self._before:
            what, slot = self._changed(now)
            raise UnsupportedError(
                f"{what}{slot.name} was changed, through a reference that was kept, after Overlapped.step() and "
                "before the update of that step was carried out. Call flush() of the optimizer or of the model "
                "between step() and the change, or reach the parameter by model.parameters() or "
                'optimizer.param_groups[...]["params"], which do so'
            )

    @outside_of_modes
    def _now(self) -> tuple[list[Any], tuple[list[Any], ...]]:
        """The objects to hold, beginning with the states of the parameters, and the notes."""
        states = list(map(self._optimizer.state.get, self._parameters, repeat(_NO_STATE)))
        try:
            values = list(chain.from_iterable(map(dict.values, states)))
        except TypeError:  # some optimizer keeps other objects
            values = []
        memory = [_storages(self._parameters), _storages(self._gradients), _storages(values)]
        return [*states, *values, *memory], (
            list(map(_version, self._parameters)),
            list(map(_address, self._parameters)),
            list(map(getattr, self._gradients, repeat("_version"), repeat(None))),
            list(map(id, memory[1])),
            list(map(id, states)),
            list(map(id, values)),
            list(map(getattr, values, repeat("_version"), repeat(None))),
            list(map(id, memory[2])),
        )

    def _changed(self, now: tuple[list[Any], ...]) -> tuple[str, Slot]:
        """The first change, and its slot."""
        for number, (before, after) in enumerate(zip(self._before, now, strict=True)):
            places = range(max(len(before), len(after)))
            changed = [place for place in places if before[place : place + 1] != after[place : place + 1]]
            if changed and number < _OF_STATE:
                return ("the gradient of " if number in _OF_GRADIENTS else ""), self._slots[changed[0]]
            if changed:
                ends = list(accumulate(map(len, self._held[: len(self._slots)])))
                place = changed[0] if number == _OF_STATE else min(bisect(ends, changed[0]), len(self._slots) - 1)
                return "the optimizer's state of ", self._slots[place]
        raise AssertionError("lists that differ do so somewhere")


def _storages(tensors: list[Any]) -> list[Any]:
    """The storages of tensors; None for other objects and for sparse tensors."""
    try:
        return list(map(torch.Tensor.untyped_storage, tensors))
    except (TypeError, NotImplementedError):
        return list(map(_storage, tensors))


def _storage(tensor: Any) -> torch.UntypedStorage | None:
    has_one = isinstance(tensor, Tensor) and torch._C._has_storage(tensor)
    return tensor.untyped_storage() if has_one else None


def share_memory(tensors: Iterable[Tensor]) -> bool:
    """Whether some share a storage: a change of one may then raise another's version."""
    storages = [tensor.untyped_storage()._cdata for tensor in tensors]
    return len(set(storages)) < len(storages)
