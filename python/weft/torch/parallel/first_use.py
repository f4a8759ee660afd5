"""First use of parameters: where a model's forward waits for updates.

A module's parameters are looked up in its `_parameters`, also by direct calls of `forward`, by
functions that get `module.weight`, and by `state_dict`. A dict that notices look-ups makes all of
these wait. Three kinds of module need more:

- Compiled ones are one unit. The compiler must see the dicts of the bare model, so they stay plain,
  and the wait is outside the compiled callable, for the whole unit.
- Modules that keep references to their own parameters elsewhere (`torch.nn.LSTM`) wait before their
  forward.
- If another module keeps references to parameters, their first use is not known: the model's
  forward begins with waiting for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from torch import nn

from weft.torch.patches.modules import before_compiled_call, is_compiled

__all__ = ["FirstUse", "Hook", "Used", "Uses", "is_watched"]


class Used(Protocol):
    """A parameter that can be waited for."""

    @property
    def index(self) -> int:
        """Its number."""

    @property
    def parameter(self) -> nn.Parameter:
        """The parameter itself."""


class Uses(Protocol):
    """The observer of first uses, which waits in them: a `Reducer`, a parameter server's worker."""

    watching: bool
    """Whether uses must be reported now."""

    @property
    def slots(self) -> Sequence[Used]:
        """The parameters that may have to be waited for."""

    def slot_of(self, parameter: Any) -> Used | None:
        """The slot of a parameter; None for anything else."""

    def use(self, parameter: Any) -> Any:
        """Waits until a parameter may be used."""


class FirstUse:
    """Watches all uses of a model's parameters, until `release`."""

    def __init__(
        self, model: nn.Module, reducer: Uses, each: Callable[[nn.Module], Callable[[], None] | None] | None = None
    ) -> None:
        """`each` is called with every module that is not compiled, and may give what undoes it."""
        self._model = model
        self._reducer = reducer
        self._each = each
        self._undo: list[Callable[[], None]] = []
        self.at_root: list[Used] = []
        """The parameters to wait for when the model's forward begins."""
        self.compiled_whole = False
        """Whether all parameters are in one compiled unit, so that no layer can wait for itself."""
        self._watch()

    def release(self) -> None:
        """Restores the modules."""
        while self._undo:
            self._undo.pop()()

    def watch_again(self) -> None:
        """Inspects the modules again, some of which may have been compiled since."""
        self.release()
        self.at_root = []
        self._watch()

    def _watch(self) -> None:
        units = list(_compiled_units(self._model))
        inside = {id(module) for unit in units for module in unit.modules()}
        for unit in units:
            self._wait_before_unit(unit)
        for module in self._model.modules():
            if id(module) not in inside:
                self._look_for_references(module)
                if module._parameters:
                    self._watch_dict(module)
                if self._each is not None and (undo := self._each(module)) is not None:
                    self._undo.append(undo)
        trained = {slot.index for slot in self._reducer.slots}
        self.compiled_whole = any(trained == {slot.index for slot in self._slots(unit)} for unit in units)

    def _watch_dict(self, module: nn.Module) -> None:
        plain = module._parameters
        watched = _WatchedParameters(plain, self._reducer)
        module._parameters = watched

        def restore() -> None:
            plain.clear()
            plain.update(dict.items(watched))
            module._parameters = plain

        self._undo.append(restore)

    def _wait_before_unit(self, unit: nn.Module) -> None:
        wait = _Wait(self._reducer, self._slots(unit))
        self._undo.append(before_compiled_call(unit, wait))

    def _look_for_references(self, module: nn.Module) -> None:
        slots = [slot for value in _references(module) if (slot := self._reducer.slot_of(value)) is not None]
        own = {id(parameter) for parameter in dict.values(module._parameters)}
        mine = [slot for slot in slots if id(slot.parameter) in own]
        if mine:
            self._undo.append(module.register_forward_pre_hook(_Wait(self._reducer, mine)).remove)
        self.at_root += [slot for slot in slots if id(slot.parameter) not in own]

    def _slots(self, unit: nn.Module) -> list[Used]:
        found = (self._reducer.slot_of(parameter) for parameter in unit.parameters())
        return [slot for slot in found if slot is not None]


def is_watched(model: nn.Module) -> bool:
    """Whether uses of the model's parameters are watched already."""
    return any(isinstance(module._parameters, _WatchedParameters) for module in model.modules())


class _WatchedParameters(dict[str, Any]):
    """A module's parameters by name, which reports each look-up to the observer.

    Copies and pickles are plain dicts.
    """

    def __init__(self, parameters: dict[str, Any], reducer: Uses) -> None:
        super().__init__(parameters)
        self._reducer = reducer

    def __getitem__(self, name: str) -> Any:
        parameter = super().__getitem__(name)
        if self._reducer.watching:
            self._reducer.use(parameter)
        return parameter

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401  # `get` is what is defined here

    def values(self) -> Any:
        self._use_all()
        return super().values()

    def items(self) -> Any:
        self._use_all()
        return super().items()

    def copy(self) -> dict[str, Any]:
        return dict(self.items())

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        from copy import deepcopy

        return {name: deepcopy(parameter, memo) for name, parameter in self.items()}

    def __reduce_ex__(self, _: Any) -> tuple[Any, ...]:
        return dict, (dict(self.items()),)

    def _use_all(self) -> None:
        if self._reducer.watching:
            for parameter in super().values():
                self._reducer.use(parameter)


class Hook:
    """A hook of a module. Copies and pickles of it do nothing."""

    def __deepcopy__(self, _: dict[int, Any]) -> Callable[..., None]:
        return _nothing

    def __reduce_ex__(self, _: Any) -> Any:
        return _get_nothing, ()


class _Wait(Hook):
    """A hook that waits for some parameters."""

    def __init__(self, reducer: Uses, slots: Iterable[Used]) -> None:
        self._reducer = reducer
        self._slots = list(slots)

    def __call__(self, *_: Any) -> None:
        if self._reducer.watching:
            for slot in self._slots:
                self._reducer.use(slot.parameter)


def _nothing(*_: Any) -> None:
    """The hook in a copy of its module: does nothing."""


def _get_nothing() -> Callable[..., None]:
    return _nothing


def _compiled_units(module: nn.Module) -> Iterator[nn.Module]:
    """The outermost modules that are compiled."""
    if is_compiled(module):
        yield module
        return
    for child in module.children():
        yield from _compiled_units(child)


def _references(module: nn.Module) -> Iterator[Any]:
    """The objects that a module holds beside its parameters, one level deep."""
    for name, value in module.__dict__.items():
        if name.startswith("_parameters"):
            continue
        if isinstance(value, nn.Parameter):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from value
        elif isinstance(value, dict):
            yield from dict.values(value)
