"""Copies of parameters that are made when an update is about to change them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import repeat
from typing import Any, Protocol

from torch import Tensor
from torch.optim import Optimizer

from weft.torch.parallel.watched_groups import plain_parameters
from weft.torch.recovery.copies import Copy, OptimizerCopy

__all__ = ["Commits", "LateCopies"]

_Note = tuple[Any, ...]
_version: Any = Tensor._version.__get__  # type: ignore[attr-defined]
_COPIED_BYTES_PER_S = 4e9
"""About; by one thread."""


class Commits(Protocol):
    """The commits of a training, as far as they matter here: `States`."""

    @property
    def is_whole(self) -> bool:
        """Whether the copies hold all of the committed state."""

    def is_voting(self, seconds: float, /) -> bool:
        """Whether the last commit is still voted on, when it was waited for that long."""

    def end_vote(self) -> None:
        """Waits until it is not, or raises its error."""

    def changed_by_program(self, name: str, /) -> None:
        """Notes that the program has changed a parameter, or its state, after a commit."""

    def send_ahead(self, optimizer: Optimizer, groups: Sequence[Mapping[str, Any]], /) -> None:
        """Sends newcomers what they need for an update: see [Note: State ahead]."""


class LateCopies:
    """Saves the parameters of one optimizer, and their state: see [Note: Late copies]."""

    def __init__(self, own: OptimizerCopy, copies: Sequence[Copy], commits: Commits) -> None:
        self._own = own
        self._copies = copies
        self._commits = commits
        self.parameters: list[Any] = []
        """All of the optimizer's, as of the last commit."""
        self._pending: set[int] = set()
        """Those whose updates belong to the last commit, and were not carried out yet."""
        self._updated: set[int] = set()
        """Those that were updated since, for the next commit: they may be changed after that."""
        self._saved: set[int] = set()
        self._noted: dict[int, _Note] = {}
        """Versions of what nothing but an update may change."""

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer itself."""
        return self._own.optimizer

    @property
    def is_possible(self) -> bool:
        """Whether its state is a dict for each parameter, and no more."""
        optimizer = self.optimizer
        hooks = (optimizer._optimizer_state_dict_pre_hooks, optimizer._optimizer_state_dict_post_hooks)
        if type(optimizer).state_dict is not Optimizer.state_dict or any(hooks):
            return False
        return optimizer.state.keys() <= set(plain_parameters(optimizer)) and all(
            map(isinstance, optimizer.state.values(), repeat(Mapping))
        )

    @property
    def is_pending(self) -> bool:
        """Whether updates of the last commit were not carried out."""
        return bool(self._pending)

    def begin(self, pending: Set[int]) -> None:
        """Begins with a commit; `pending` are the parameters, by `id`, that it still updates."""
        self.parameters = plain_parameters(self.optimizer)
        self._pending = {id(one) for one in self.parameters if id(one) in pending}
        self._updated.clear()
        self._noted = self._notes([one for one in self.parameters if id(one) not in pending])

    def reset(self) -> None:
        """Begins without a commit: everything is copied."""
        self._noted.clear()
        for one in (self._pending, self._updated, self._saved):
            one.clear()

    def check(self) -> None:
        """Looks for changes by the program since the last commit, at the end of the next step."""
        self._check([one for one in self.parameters if id(one) not in self._updated])

    def forget(self) -> None:
        """Forgets what was saved: the committed values are in place, or become so by updates."""
        self._saved.clear()

    def complete(self) -> None:
        """Copies from what is in place all that was not saved."""
        unsaved = [one for one in self.parameters if id(one) not in self._saved]
        self._check(unsaved)
        for parameter in unsaved:
            self._save(parameter)

    def before_update(self, parameters: Sequence[Any], groups: Sequence[Mapping[str, Any]]) -> None:
        """See `Watcher`."""
        self._commits.send_ahead(self.optimizer, groups)
        later = [one for one in parameters if id(one) not in self._pending]
        if later:
            self._commits.end_vote()
        is_voting = self._commits.is_voting(sum(map(self._nbytes, parameters)) / _COPIED_BYTES_PER_S)
        self._check(later)
        if not self._commits.is_whole:
            for parameter in parameters if is_voting else later:
                if id(parameter) not in self._saved:
                    self._save(parameter)
        self._pending.difference_update(map(id, parameters))
        self._updated.update(map(id, later))

    def after_update(self, parameters: Sequence[Any]) -> None:
        """See `Watcher`."""
        self._noted.update(self._notes(parameters))

    def _save(self, parameter: Any) -> None:
        for one in self._copies:
            one.save(parameter)
        self._saved.add(id(parameter))

    def _check(self, parameters: Sequence[Any]) -> None:
        """Compares what was noted with the present state, and forgets it."""
        for key, now in self._notes(parameters).items():
            if self._noted.pop(key, now) != now:
                place = [id(one) for one in self.parameters].index(key)
                self._commits.changed_by_program(f"parameter {place} of {type(self.optimizer).__name__}")

    def _notes(self, parameters: Sequence[Any]) -> dict[int, _Note]:
        """Versions and addresses, by `id`. In builtin functions, as every step needs them."""
        values = list(map(tuple, map(self._values, parameters)))
        notes = zip(
            map(_version, parameters),
            map(Tensor.data_ptr, parameters),
            [tuple(map(id, each)) for each in values],
            [tuple(map(getattr, each, repeat("_version"), repeat(None))) for each in values],
            strict=True,
        )
        return dict(zip(map(id, parameters), notes, strict=True))

    def _nbytes(self, parameter: Any) -> int:
        nbytes: int = parameter.nbytes
        return nbytes + sum(one.nbytes for one in self._values(parameter) if isinstance(one, Tensor))

    def _values(self, parameter: Any) -> Iterable[Any]:
        state = self.optimizer.state.get(parameter)
        return state.values() if isinstance(state, Mapping) else ()
