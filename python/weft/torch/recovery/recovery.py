"""Training that continues after deaths: kept states, and the state that each rank returns to.

[Note: Committed steps] A step is *prepared* on a rank when its state is complete there: all
averages have ended, all updates are done, `commit` was called, and divided state is where it will
be kept (see [Note: Kept shares]). Then the ranks meet; a rank that has passed this meeting copies
the state, and the step is *committed* there. So no rank copies before all have prepared, and the
last prepared step of any rank is at most one commit ahead of the last committed step of any other.

When the group breaks, the survivors take their lowest prepared step, S. A rank that has prepared S
and nothing since has not changed its state since, or has kept it: the state of S is there, or in
the copy. A rank that has prepared the next step has not copied it, since some survivor has not
prepared it: its copy is that of S. So one copy is enough. This also holds if another rank dies
meanwhile: all ranks that took S have prepared S now, so later agreements find S too.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar
from weakref import WeakSet

import numpy as np
import torch.distributed as dist

from weft.api.group import Group
from weft.errors import Aborted, ArgumentError, ConfigError, Error, PeerLost, StillRunning, Timeout
from weft.output.logs import LOGGER
from weft.torch.lookup import backend_of
from weft.torch.parallel.data_parallel import DataParallel, living_models
from weft.torch.recovery.copies import Copy, OptimizerCopy, RandomNumbers, copy_of
from weft.torch.recovery.survivors import meeting_of, replace_default_group

__all__ = ["Recovery"]

T = TypeVar("T")

_FAILURES = (PeerLost, Timeout, Aborted)
"""Errors of a broken group. Other errors are the program's."""


class Recovery:
    """Training that continues with the surviving ranks when others die.

    It keeps a copy of the last committed state of models, optimizers and other objects with
    `state_dict`. When a rank dies, the survivors restore it, make a default process group of their
    own, and compute the later steps again. `run` calls a function for this, again after each death:
    make objects that depend on ranks there.

    Every rank of the default process group, over weft, makes one with the same parts and options.

    Attributes:
        step: The number of completed steps. Set it before `run` to continue from a checkpoint.
        recoveries: How often this rank has returned to a committed step.
    """

    def __init__(self, *parts: Any, every: int = 1, ranks_min: int = 1) -> None:
        """Describes the state of training.

        Args:
            parts: Plain models and optimizers, and other objects with `state_dict` and
                `load_state_dict`: schedulers, a `GradScaler`, a `weft.torch.modes.Mode`. The states
                of the random number generators of torch (CPU), NumPy and Python are kept as well.
            every: Steps from one committed step to the next, and so the most that are computed
                again. A commit copies all parts, and carries out the updates of
                `weft.torch.Overlapped`.
            ranks_min: With fewer survivors, `run` raises an error.

        Raises:
            weft.ArgumentError: An option is not allowed, or a part has no state or is wrapped.
            weft.UnsupportedError: A model is sharded.
        """
        for name, value in (("every", every), ("ranks_min", ranks_min)):
            if value < 1:
                raise ArgumentError(f"{name}={value} is not allowed: expected a number of at least 1")
        if not parts:
            raise ArgumentError("no parts: expected the model, the optimizer, and other objects that training changes")
        self.step = 0
        self.recoveries = 0
        self._every = every
        self._ranks_min = ranks_min
        self._copies: list[Copy] = [*map(copy_of, parts), RandomNumbers()]
        self._optimizers = [one for one in self._copies if isinstance(one, OptimizerCopy)]
        self._prepared = self._committed = 0
        self._tried: tuple[int, int] | None = None
        """The committed step and the number of ranks with which the last recovery continued."""
        self._others: WeakSet[DataParallel] = WeakSet()
        """Models that existed before `run`, and whose failures are not those of `train`."""

    @property
    def nbytes(self) -> int:
        """The bytes of the copies on this rank."""
        return sum(one.nbytes for one in self._copies)

    @property
    def committed(self) -> int:
        """The last committed step."""
        return self._committed

    def run(self, train: Callable[[Recovery], T]) -> T:
        """Calls a function until it returns without a death meanwhile, and returns its result.

        `train` wraps the models for the default process group, looks up rank and size, and computes
        steps from `step` on, with a `commit` after each. After a death it is called again, on fewer
        ranks. It must keep nothing of the group anywhere else.

        Raises:
            weft.ConfigError: There is no default process group over weft.
            weft.Error: Fewer than `ranks_min` ranks survive; this rank was given up by the others;
                or the same step has failed again on the same ranks.
        """
        _check_default_group()
        self._others.update(living_models())
        self._prepared = self.step
        self._keep()
        while True:
            try:
                result = train(self)
                if self._committed != self.step:
                    self._commit()
                return result
            except Exception as error:
                failure = _failure_in(error)
                if failure is None:
                    raise
                self._unwrap_models()
            # The error's frames have gone with what `train` has made of the group: DDP's hooks on
            # the parameters end when it is collected.
            gc.collect()
            self._go_on(failure)

    def commit(self) -> None:
        """Ends a step, on every rank; every `every` steps all agree that it is done, and keep it.

        Raises:
            weft.Error: Communication has failed. Let it pass: `run` handles it.
        """
        self.step += 1
        if self.step % self._every == 0:
            self._commit()

    def _commit(self) -> None:
        """See [Note: Committed steps]."""
        models = self._models()
        for model in models:
            model.flush()
        divided = {one.inner: one for model in models for one in model._reducer.divided}
        for kept in self._optimizers:
            kept.prepare(divided.get(kept.optimizer))
        self._prepared = self.step
        steps = Group(backend_of(None).weft_group).all_gather(np.array([self.step]))
        if (steps != self.step).any():
            raise ConfigError(f"ranks commit different steps: {steps.ravel().tolist()}, by rank")
        self._keep()

    def _models(self) -> list[DataParallel]:
        """The models that `train` has made."""
        return [model for model in living_models() if model not in self._others]

    def _unwrap_models(self) -> None:
        """Ends the wrappers of the broken group, which must leave the parameters unchanged."""
        for model in self._models():
            try:
                model.unwrap()
            except Error:  # the first to notice: pending updates are dropped
                model.unwrap()

    def _keep(self) -> None:
        for one in self._copies:
            one.take()
        self._committed = self._prepared

    def _go_on(self, failure: str) -> None:
        """Makes a group of the survivors, and returns to the last step that all have prepared."""
        backend = backend_of(None)
        timeout: timedelta = backend.options._timeout
        before, group = dist.get_world_size(), Group(backend.weft_group)
        LOGGER.warning("in step %d: %s. Looking for survivors", self.step, failure)
        while True:
            group = group.shrink()
            try:
                step = int(group.all_gather(np.array([self._prepared])).min())
                self._check_progress(group.size, step, failure)
                for kept in self._optimizers:
                    kept.shares.collect(group, committed=step == self._committed)
                store = meeting_of(group, timeout)
                break
            except (*_FAILURES, dist.DistError) as error:
                LOGGER.warning("recovering: %s: %s. Looking for survivors", type(error).__name__, error)
        replace_default_group(group, store, timeout)
        self._return_to(step)
        self.recoveries += 1
        LOGGER.warning("%d of %d ranks continue after step %d", group.size, before, step)

    def _check_progress(self, ranks: int, step: int, failure: str) -> None:
        """Raises if training cannot continue, or would fail again forever."""
        if ranks < self._ranks_min:
            raise Error(f"{ranks} ranks survive, and ranks_min={self._ranks_min}: training ends. {failure}")
        if self._tried == (step, ranks):
            raise Error(f"the {ranks} ranks that continued after step {step} have failed there again. {failure}")
        self._tried = step, ranks

    def _return_to(self, step: int) -> None:
        if step != self._committed:  # prepared, and nothing since
            self._keep()
        for one in self._copies:
            one.put_back()
        self.step = self._prepared = step


def _check_default_group() -> None:
    if not dist.is_initialized():
        raise ConfigError("there is no process group: call torch.distributed.init_process_group('weft') first")
    if dist.get_backend() != "weft":
        raise ConfigError(
            f"the default process group's backend is {dist.get_backend()}: expected weft, as in "
            "init_process_group('weft')"
        )


def _failure_in(error: BaseException) -> str | None:
    """The error of a broken group among an error and its causes."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, _FAILURES) and not isinstance(cause, StillRunning):
            return f"{type(cause).__name__}: {cause}"
        cause = cause.__cause__ or cause.__context__
    return None
