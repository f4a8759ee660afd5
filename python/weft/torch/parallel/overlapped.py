"""An optimizer whose updates are carried out layer by layer, when forward first uses them."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import torch
from torch.optim import Optimizer

from weft.errors import ArgumentError
from weft.torch.parallel.announced import announced
from weft.torch.parallel.buckets import Bucket, Slot
from weft.torch.parallel.data_parallel import DataParallel
from weft.torch.parallel.divided.division import Division
from weft.torch.parallel.divided.norm import norm_of
from weft.torch.parallel.divided.one_copy import OneCopy, check_one_host
from weft.torch.parallel.divided.optimizer import (
    DividedOptimizer,
    Part,
    check_optimizers,
    check_whole,
    note_loaded,
    to_be_loaded,
)
from weft.torch.parallel.divided.step import DividedStep
from weft.torch.parallel.gradient import raw_gradient
from weft.torch.parallel.optimizer_kinds import check_separable, is_elementwise
from weft.torch.parallel.partial_step import PartialStep, StepSettings, groups_differ, handing_over
from weft.torch.parallel.watched_groups import plain_groups, plain_parameters, watch_groups
from weft.torch.patches.modes import outside_of_modes
from weft.torch.patches.optimizers import (
    begin_as_wrapper,
    call_step_post_hooks,
    call_step_pre_hooks,
    has_step_post_hooks,
    note_step,
)

__all__ = ["Overlapped", "is_deferrable", "note_deferrable", "trains"]

_ALL_READ = (
    "every step reads all gradients before it, as torch.nn.utils.clip_grad_norm_ does, and so waits for all averages: "
    "communication does not overlap with the next forward. Clip each rank's own gradients in hooks of the parameters "
    "(Tensor.register_hook), let a fused=True optimizer unscale them, or make the wait shorter by "
    "mode=weft.torch.modes.Wire('bf16')"
)
_ALL_GATHERED = (
    "every step reads all gradients before it, as torch.nn.utils.clip_grad_norm_ does: each rank has the averages of "
    "its share only, so they are gathered, which takes half as long as an all-reduce, and communication does not "
    "overlap with the next forward. To clip, call optimizer.clip_grad_norm_(max_norm), which needs sums of squares only"
)
_CLIPPING_EPSILON = 1e-6
"""As torch's, so that a norm of 0 is not divided by."""
_deferrable: WeakSet[Optimizer] = WeakSet()
"""Those whose first step has changed nothing in their groups, for when they are wrapped again."""
_READ_STEPS_MIN = 2
"""One after the other: a look at the gradients now and then costs little."""


class Overlapped(Optimizer):
    """An optimizer whose `step` returns before the gradients have been averaged.

    Each bucket of the model's parameters is updated when forward first uses one of them, by the
    hyperparameters at the time of `step`, with the same bits as by the optimizer alone. It may be
    used as any optimizer; `param_groups`, `state` and `defaults` are the inner one's. Accesses that
    need all updates (`state_dict`, `eval`, `parameters()`, reading a `grad`, copies, pickles) carry
    them out first, and so does `flush`.

    The first step is carried out as a whole. It shows whether the optimizer keeps state in its
    groups, as optimizers do whose parameters depend on each other. Such an optimizer is not
    deferred, with a warning. Pass `defer=False` for others that are known to do so.

    `step` with a closure, and hooks after the step, are not deferred either.
    """

    def __init__(self, optimizer: Optimizer, model: DataParallel, *, defer: bool = True) -> None:
        """Wraps an optimizer.

        Args:
            optimizer: Any that updates a parameter by its own gradient and state.
            model: The model whose parameters it updates. Parameters of other models are updated by
                `step` itself.
            defer: False: `step` carries out the whole update.

        Raises:
            weft.UnsupportedError: The optimizer is known to couple parameters.
            weft.ArgumentError: It has no parameter of the model.
        """
        _check(optimizer, model)
        self._inner = optimizer
        self._model = model
        self._reducer = model._reducer
        self._defer = defer
        self._first = not is_deferrable(optimizer)
        self._read_steps = 0
        begin_as_wrapper(self)
        self._divided: DividedOptimizer | None = None
        self._reducer.defer_updates(optimizer)
        if (nbytes_min := model.shard_bytes_min) is not None:
            self._divide(optimizer, nbytes_min)
        watch_groups(optimizer, self._reducer)

    @property
    def optimizer(self) -> Optimizer:
        """The inner optimizer."""
        return self._inner

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The inner optimizer's groups. Changes apply from the next step on.

        Reading a group's `["params"]` carries out all updates; hyperparameters do not wait.
        """
        return self._inner.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.flush()
        self._inner.param_groups = groups

    @property
    def state(self) -> defaultdict[torch.Tensor, Any]:  # type: ignore[override]
        """The inner optimizer's state, with all updates carried out."""
        self.flush()
        if self._divided is None:
            return self._inner.state
        return defaultdict(dict, {**self._inner.state, **self._divided.state})

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        """The inner optimizer's defaults."""
        return self._inner.defaults

    def __getattr__(self, name: str) -> Any:
        """Other attributes of the inner optimizer."""
        if name == "_inner":
            raise AttributeError(name)
        return getattr(self._inner, name)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Takes the gradients of backward for an update, which is carried out at first use.

        Raises:
            weft.Error: Communication has failed.
        """
        self._reducer.check()
        if self._divided is not None:
            return self._divided_step(self._divided, closure)
        if closure is not None:
            self._say_once("a closure evaluates the loss within the step, so the step is not deferred")
            self.flush()
            with announced(self._inner, plain_parameters(self._inner), plain_groups(self._inner)):
                return self._inner.step(closure)
        self.flush()
        if self._first or not self._defer or self._model.is_alone or self._step_hooks():
            return self._step_as_a_whole()
        self._begin_updates()
        return None

    def flush(self) -> None:
        """Carries out all updates: parameters and state are then as after a plain step.

        Raises:
            weft.Error: Communication has failed.
        """
        self._reducer.flush()

    @outside_of_modes
    def clip_grad_norm_(self, max_norm: float) -> torch.Tensor:
        """Clips the norm of all gradients of this optimizer, as `torch.nn.utils.clip_grad_norm_`.

        Divided gradients are not gathered for it: ranks exchange sums of squares, and each scales
        its share. Every rank calls it, between backward and step. The norm is the same on any
        number of ranks: squares are added in float64, in blocks of each tensor.

        Args:
            max_norm: The largest 2-norm.

        Returns:
            The norm before, a tensor of no dimensions; NaN if a gradient is not finite.

        Raises:
            weft.ArgumentError: `max_norm` is not a number above 0.
            weft.Error: Communication has failed.
        """
        if not max_norm > 0:
            raise ArgumentError(f"max_norm={max_norm!r}: expected a number above 0")
        self._reducer.check()
        self.flush()
        self._reducer.wait()
        whole, pieces = self._reducer.gradients_of(plain_parameters(self._inner))
        communication = self._model._communication if self._divided is not None else None
        norm = norm_of([flat for _, flat in whole], [flat for _, flat in pieces], communication)
        factor = max_norm / (norm + _CLIPPING_EPSILON)
        if not factor >= 1:
            torch._foreach_mul_([gradient for gradient, _ in (*whole, *pieces)], factor)
        return torch.tensor(norm, dtype=torch.float32, device="cpu")

    @outside_of_modes
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients; updates that have taken them keep them.

        Without `set_to_none` all updates are carried out first.
        """
        if not set_to_none:
            self._inner.zero_grad(set_to_none=False)
            return
        for group in plain_groups(self._inner):
            for parameter in group["params"]:
                slot = self._reducer.slot_of(parameter)
                if slot is None:
                    parameter.grad = None
                else:
                    slot.drop_gradient()

    def state_dict(self) -> dict[str, Any]:
        """The inner optimizer's state, after all updates."""
        self._reducer.check()
        self.flush()
        return self._inner.state_dict()

    def full_state_dict(self, rank: int | None = None) -> dict[str, Any]:
        """The inner optimizer's whole state, after all updates, as `state_dict` of a plain run.

        Every rank calls it. Load it with `load_state_dict`, on any number of ranks.

        Args:
            rank: The only rank of the group that gets the states; all do, if it is not given.

        Raises:
            weft.Error: Communication has failed.
        """
        self._reducer.check()
        self.flush()
        if self._divided is None:
            return self._inner.state_dict()
        with self._divided.incomplete():
            found = self._inner.state_dict()
        wanted = rank in (None, self._model._communication.rank)
        places = {id(one): place for place, one in enumerate(plain_parameters(self._inner))}
        for slot, whole in self._divided.whole_states():
            if wanted:
                found["state"][places[id(slot.parameter)]] = whole
        found["state"] = dict(sorted(found["state"].items()))
        return found

    def sharded_state_dict(self, *, for_loading: bool = False) -> dict[str, Any]:
        """This rank's shares of the state, for `torch.distributed.checkpoint`, after all updates.

        Save it on all ranks. To load it, on any number of ranks, with updates divided or not, let
        `torch.distributed.checkpoint.load` fill a `sharded_state_dict(for_loading=True)`, and pass
        that to `load_sharded_state_dict`.

        Args:
            for_loading: It also has the state that the first step makes for each parameter.

        Raises:
            weft.Error: Communication has failed.
        """
        from weft.torch.parallel.divided.checkpoint import sharded_state

        self._reducer.check()
        self.flush()
        with (
            contextlib.nullcontext() if self._divided is None else self._divided.incomplete(),
            to_be_loaded(self._inner) if for_loading else contextlib.nullcontext(),
        ):
            groups = self._inner.state_dict()["param_groups"]
        if self._divided is not None:
            self._divided.take_inner()
        return {"state": sharded_state(self._inner, self._part_of, for_loading=for_loading), "param_groups": groups}

    def load_sharded_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over a loaded `sharded_state_dict`; updates that wait are carried out first.

        Every rank calls it, with the buckets for which the dict was made.

        Raises:
            weft.ArgumentError: On all ranks: on one of them it is not of the present shares.
            weft.Error: Communication has failed.
        """
        from weft.torch.parallel.divided.checkpoint import load_sharded_state, refusal

        self.flush()
        if self._divided is not None:
            self._divided.take_inner()
        found = self._model._communication.gather(refusal(self._inner, self._part_of, state_dict), str)
        for rank, why in enumerate(found):
            if why:
                raise ArgumentError(
                    f"on rank {rank}, {why}: expected the result of sharded_state_dict(for_loading=True) with the "
                    "present buckets"
                )
        load_sharded_state(self._inner, self._part_of, state_dict)
        note_loaded(self._inner)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads the inner optimizer's state; updates that wait are carried out first."""
        self.flush()
        self._inner.load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group to the inner optimizer, after all updates."""
        self.flush()
        self._inner.add_param_group(param_group)

    def __deepcopy__(self, memo: dict[int, Any]) -> Optimizer:
        """A copy of the inner optimizer, which is a plain one."""
        self.flush()
        check_whole(self._inner)
        return copy.deepcopy(self._inner, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """The inner optimizer's pickle."""
        self.flush()
        check_whole(self._inner)
        return self._inner.__reduce_ex__(protocol)

    def __repr__(self) -> str:
        return f"Overlapped({self._inner!r})"

    def _part_of(self, parameter: torch.Tensor) -> Part | None:
        """The part of a parameter that this rank updates; None if nothing."""
        slot = self._reducer.slot_of(parameter)
        if self._divided is not None and slot is not None and self._divided.divides(slot):
            return self._divided.part_of(slot)
        return Part(parameter, parameter, 0, self._inner.state)

    def _name_of(self, parameter: torch.Tensor) -> str:
        slot = self._reducer.slot_of(parameter)
        return "another tensor" if slot is None else slot.name

    def _divide(self, optimizer: Optimizer, nbytes_min: int) -> None:
        communication = self._model._communication
        groups = [list(map(self._name_of, group["params"])) for group in optimizer.param_groups]
        check_optimizers(optimizer, groups, communication)
        self._first = False
        self._divided = DividedOptimizer(optimizer, communication)
        if self._model.has_one_copy:
            check_one_host(communication)
        kind = OneCopy if self._model.has_one_copy else Division
        self._reducer.divide_updates(self._divided, nbytes_min, kind, whole_tensors=not is_elementwise(optimizer))

    def _divided_step(self, divided: DividedOptimizer, closure: Callable[[], Any] | None) -> Any:
        loss = None
        if closure is not None:
            self._say_once("a closure evaluates the loss within the step, so the step is not deferred")
            with torch.enable_grad():
                loss = closure()
        self.flush()
        divided.take_inner()
        self._begin_updates(divided)
        if closure is not None or not self._defer or self._step_hooks():
            self.flush()
            call_step_post_hooks(self._inner)
        return loss

    def _begin_updates(self, divided: DividedOptimizer | None = None) -> None:
        """Leaves an update in each bucket; those of shares begin when their averages are here."""
        self._read_steps = self._read_steps + 1 if self._reducer.all_read_early else 0
        if self._read_steps == _READ_STEPS_MIN:
            self._say_once(_ALL_READ if divided is None else _ALL_GATHERED)
        call_step_pre_hooks(self._inner)
        note_step(self._inner)
        watch_groups(self._inner, self._reducer)  # load_state_dict and others replace them
        settings = StepSettings(self._inner, StepSettings.handed_to(self))
        by_bucket, others = self._taken()
        if others:
            PartialStep(self._inner, others, settings)()
        updates: list[tuple[Bucket, PartialStep | DividedStep]] = []
        for bucket in sorted(by_bucket, key=lambda one: one.number):
            members = by_bucket[bucket]
            if bucket.division is None or divided is None:
                updates.append((bucket, PartialStep(self._inner, members, settings)))
            else:
                whole = self._inner, divided
                updates.append((bucket, DividedStep(whole, bucket, bucket.division, members, settings)))
        for bucket, update in updates:
            bucket.updates.append(update)
        shares = [update for _, update in updates if isinstance(update, DividedStep)]
        communication = self._model._communication
        ready = communication.all_arrive() if shares and self._model.has_one_copy else None
        for share in sorted(shares, key=lambda one: -one.priority):  # the same order on all ranks
            share.start(communication, self._model._observer, ready)
        self._reducer.watching = True

    @outside_of_modes
    def _taken(self) -> tuple[dict[Bucket, list[tuple[int, Slot]]], list[tuple[int, Slot]]]:
        """The parameters that this step updates: slots with their groups, by bucket; and others."""
        by_bucket: dict[Bucket, list[tuple[int, Slot]]] = {}
        others = []
        for number, group in enumerate(plain_groups(self._inner)):
            for parameter in group["params"]:
                slot = self._reducer.slot_of(parameter)
                if slot is None:
                    stranger = Slot(-1, "", parameter)
                    if stranger.take_gradient():
                        others.append((number, stranger))
                elif slot.take_gradient():
                    by_bucket.setdefault(slot.bucket, []).append((number, slot))
        return by_bucket, others

    def _step_as_a_whole(self) -> Any:
        self._reducer.wait()
        before = StepSettings(self._inner, {}).groups if self._first else None
        with (
            announced(self._inner, plain_parameters(self._inner), plain_groups(self._inner)),
            handing_over(self._inner, StepSettings.handed_to(self)),
        ):
            result = self._inner.step()
        if before is not None:
            self._first = not self._any_gradient()
            if groups_differ(before, StepSettings(self._inner, {}).groups):
                self._defer = False
                self._say_once("it keeps state of all parameters in its groups, so its steps are not deferred")
            elif not self._first:
                note_deferrable(self._inner)
        return result

    @outside_of_modes
    def _any_gradient(self) -> bool:
        return any(raw_gradient(one) is not None for group in self.param_groups for one in group["params"])

    def _step_hooks(self) -> bool:
        if has_step_post_hooks(self) or has_step_post_hooks(self._inner):
            self._say_once("a hook after the step expects updated parameters, so steps are not deferred")
            return True
        return False

    def _say_once(self, why: str) -> None:
        said = vars(self).setdefault("_said", set())
        if why not in said:
            said.add(why)
            warnings.warn(f"weft.torch.Overlapped({type(self._inner).__name__}): {why}", stacklevel=3)


def is_deferrable(optimizer: Optimizer) -> bool:
    """Whether its first step has changed nothing in its groups."""
    return optimizer in _deferrable


def note_deferrable(optimizer: Optimizer) -> None:
    """Notes that its first step, here or on another rank, has changed nothing in its groups."""
    _deferrable.add(optimizer)


def trains(optimizer: Optimizer, model: DataParallel) -> bool:
    """Whether the optimizer has a parameter of the model."""
    parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
    return any(model._reducer.slot_of(parameter) is not None for parameter in parameters)


def _check(optimizer: Optimizer, model: DataParallel) -> None:
    if not isinstance(model, DataParallel):
        raise ArgumentError(
            f"model is a {type(model).__name__}: expected the weft.torch.DataParallel whose parameters are updated"
        )
    if not isinstance(optimizer, Optimizer) or isinstance(optimizer, Overlapped):
        raise ArgumentError(f"optimizer is a {type(optimizer).__name__}: expected a torch.optim.Optimizer")
    check_separable(optimizer)
    if not trains(optimizer, model):
        raise ArgumentError("the optimizer has no parameter of the model: expected torch.optim...(model.parameters())")
