"""Steps in parts that continue when a model is wrapped again, for other ranks."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from torch import nn

from weft.torch.parallel.virtual.sums import PartSums

__all__ = ["begin_parts", "continue_parts", "fewest_virtual_ranks", "is_strict", "state_of_parts"]

_wrapped: WeakKeyDictionary[nn.Module, PartSums] = WeakKeyDictionary()
_continued: WeakKeyDictionary[nn.Module, dict[str, Any]] = WeakKeyDictionary()


def begin_parts(module: nn.Module, sums: PartSums) -> None:
    """Notes the sums of a model that is wrapped, which continue where `continue_parts` says."""
    _wrapped[module] = sums
    state = _continued.pop(module, None)
    if state is not None:
        sums.load_state_dict(state)


def state_of_parts(module: nn.Module) -> dict[str, Any] | None:
    """The state with which steps continue; None if the model has no virtual ranks."""
    sums = _wrapped.get(module)
    return None if sums is None else sums.state_dict()


def continue_parts(module: nn.Module, state: dict[str, Any] | None) -> None:
    """Makes steps continue from a state when the model is wrapped again."""
    if state is not None:
        _continued[module] = state


def is_strict() -> bool | None:
    """Whether ranks with other bits are refused; None if no model has virtual ranks."""
    return max((sums.strict for sums in _wrapped.values()), default=None)


def fewest_virtual_ranks() -> int | None:
    """The most ranks that can carry all models with virtual ranks; None without such a model."""
    return min((sums.divisor.contributions for sums in _wrapped.values()), default=None)
