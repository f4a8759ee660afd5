"""Observation of a training loop by torch's hooks for all modules, tensors and optimizers.

The loop is not changed. A step ends when the optimizer that stepped first has stepped; its parts
are found from the order of events: forwards of modules with parameters, backwards.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from weft.torch.parallel.overlapped import Overlapped
from weft_lab.prediction.profile import ProfiledParameter, TrainingProfile

__all__ = ["Observation", "TrainingMeasured"]

_COPIED_BYTES, _COPIES = 32 << 20, 5
_WRAPPERS = ("DataParallel", "DistributedDataParallel")
_PREFIX = "module."

_now = time.perf_counter


class TrainingMeasured(BaseException):
    """Ends a training script, past its own handlers of exceptions."""


class _StepEvents:
    """Times of the events of one step."""

    def __init__(self, begin: float | None) -> None:
        self.begin = begin
        self.forward: list[float] = []
        """The start of the first forward, and the end of the last before backward."""
        self.backward: list[float] = []
        """Start and end of the last backward."""
        self.update: float | None = None
        self.starts: dict[int, float] = {}
        """The first forward of each module, by identity."""
        self.ready: dict[int, float] = {}
        """The last times of parameters' gradients, by identity."""

    def durations(self, end: float) -> tuple[float, ...] | None:
        """From one event to the next; None unless all of them occurred, in their order."""
        events = [self.begin, *self.forward, *self.backward, self.update, end]
        times = [event for event in events if event is not None]
        if len(times) != 7 or times != sorted(times):
            return None
        return tuple(later - earlier for earlier, later in itertools.pairwise(times))


class Observation:
    """Watches this process from `begin` on, until enough steps were measured."""

    def __init__(self, untimed: int, steps: int, on_step: Callable[[], object]) -> None:
        """Measures `steps` steps after this many untimed ones; calls `on_step` after each."""
        self._untimed, self._steps, self._on_step = untimed, steps, on_step
        self._seen = 0
        self._durations: list[tuple[float, ...]] = []
        self._ready: dict[int, list[float]] = {}
        self._uses: dict[int, list[float]] = {}
        self._events = _StepEvents(None)
        self._depth = self._updating = 0
        self._optimizer: Optimizer | None = None
        self._roots: dict[int, nn.Module] = {}
        self._owners: dict[int, list[nn.Module]] = {}
        """For each parameter, the modules around it, innermost first."""
        self._parameters: dict[int, tuple[str, nn.Parameter]] = {}

    @property
    def seen(self) -> int:
        """How many complete steps there were."""
        return self._seen

    def begin(self) -> None:
        """Registers the hooks, which stay until the process ends."""
        nn.modules.module.register_module_forward_pre_hook(self._before_forward)
        nn.modules.module.register_module_forward_hook(self._after_forward, always_call=True)
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)
        torch.autograd.backward = self._around_backward(torch.autograd.backward)
        # Updates that wait for the next forward would count as a part of it.
        Overlapped.__init__ = functools.partialmethod(Overlapped.__init__, defer=False)  # type: ignore[assignment]

    def profile(self, what: str) -> TrainingProfile | None:
        """The profile; None if no complete step was measured."""
        if not self._durations:
            return None
        prepare, forward, loss, backward, finish, update = (
            statistics.median(times) for times in zip(*self._durations, strict=True)
        )
        parameters = tuple(
            ProfiledParameter(
                name,
                tuple(parameter.shape),
                str(parameter.dtype).removeprefix("torch."),
                parameter.itemsize,
                _median(self._ready.get(identity, [])),
                _median(self._uses.get(identity, [])),
            )
            for identity, (name, parameter) in self._parameters.items()
        )
        return TrainingProfile(
            what,
            torch.get_num_threads(),
            len(self._durations),
            prepare,
            forward,
            loss,
            backward,
            finish,
            update,
            _copy_s_per_byte(),
            parameters,
        )

    def _before_forward(self, module: nn.Module, _: Any) -> None:
        if torch.compiler.is_compiling():
            return
        if self._depth == 0 and id(module) not in self._roots and torch.is_grad_enabled():
            self._take(module)
        now = _now()
        if torch.is_grad_enabled() and not self._updating:
            self._events.starts.setdefault(id(module), now)
            if self._depth == 0 and id(module) in self._roots and not self._events.forward:
                self._events.forward = [now, now]
        self._depth += 1

    def _after_forward(self, module: nn.Module, _: Any, __: Any) -> None:
        if torch.compiler.is_compiling():
            return
        self._depth -= 1
        if self._depth == 0 and id(module) in self._roots and self._events.forward and not self._events.backward:
            self._events.forward[1] = _now()

    def _around_backward(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backward)
        def observed(*arguments: Any, **keywords: Any) -> Any:
            begin = _now()
            try:
                return backward(*arguments, **keywords)
            finally:
                self._events.backward = [begin, _now()]

        return observed

    def _gradient(self, parameter: Tensor) -> None:
        self._events.ready[id(parameter)] = _now()

    def _before_step(self, optimizer: Optimizer, _: Any, __: Any) -> None:
        if self._optimizer is None and self._events.backward:
            self._optimizer = optimizer
        if optimizer is self._optimizer and not self._updating:
            self._events.update = _now()
        self._updating += optimizer is self._optimizer

    def _after_step(self, optimizer: Optimizer, _: Any, __: Any) -> None:
        if optimizer is not self._optimizer:
            return
        self._updating -= 1
        if self._updating:
            return
        events, end = self._events, _now()
        self._events = _StepEvents(end)
        durations = events.durations(end)
        if durations is not None or events.begin is None:
            self._seen += 1
            self._on_step()
        if durations is not None and self._seen > self._untimed:
            self._keep(events, durations)
        if len(self._durations) >= self._steps:
            raise TrainingMeasured

    def _keep(self, events: _StepEvents, durations: tuple[float, ...]) -> None:
        self._durations.append(durations)
        for identity in self._parameters:
            starts = (events.starts.get(id(owner)) for owner in self._owners[identity])
            used = next((start for start in starts if start is not None), None)
            if used is not None:
                self._uses.setdefault(identity, []).append(max(used - events.forward[0], 0.0))
            if identity in events.ready:
                # Negative: it was computed in an earlier micro-batch only.
                self._ready.setdefault(identity, []).append(max(events.ready[identity] - events.backward[0], 0.0))

    def _take(self, root: nn.Module) -> None:
        """Observes the parameters of a module that the script calls, if it has any to train."""
        names = {id(module): name for name, module in root.named_modules()}
        wrapped = type(root).__name__ in _WRAPPERS
        for module in root.modules():
            # `dict.items`: the dicts of weft.torch.DataParallel would take it for a use.
            for own, parameter in dict.items(module._parameters):
                if parameter is None or not parameter.requires_grad:
                    continue
                self._roots[id(root)] = root
                if id(parameter) in self._parameters:
                    continue
                name = ".".join(filter(None, (names[id(module)], own)))
                self._parameters[id(parameter)] = name.removeprefix(_PREFIX if wrapped else ""), parameter
                self._owners[id(parameter)] = _around(root, names[id(module)])
                parameter.register_post_accumulate_grad_hook(self._gradient)  # type: ignore[no-untyped-call]


def _around(root: nn.Module, path: str) -> list[nn.Module]:
    """The module at a path and those around it, innermost first."""
    parts = path.split(".") if path else []
    return [root.get_submodule(".".join(parts[:length])) for length in range(len(parts), -1, -1)]


def _median(times: list[float]) -> float:
    return statistics.median(times) if times else math.inf


def _copy_s_per_byte() -> float:
    source = torch.ones(_COPIED_BYTES // 4)
    target = torch.empty_like(source)
    times = []
    for _ in range(_COPIES):
        begin = _now()
        target.copy_(source)
        times.append(_now() - begin)
    return min(times) / _COPIED_BYTES
