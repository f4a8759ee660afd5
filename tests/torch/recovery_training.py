"""Training whose ranks die at chosen places, and the same training without deaths."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.distributed as dist
from deaths import SHARE_PLACES, die, die_in_share
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

import weft.torch
from weft.torch.modes import PowerSGD
from weft.torch.parallel.divided import division
from weft.torch.recovery import shares, vote
from weft.torch.recovery.shares import Shares, keepers

STEPS = 9
SAMPLES, INPUTS, OUTPUTS = 3, 6, 2

Wrapping = Callable[[nn.Module, torch.optim.Optimizer, Any], tuple[nn.Module, torch.optim.Optimizer]]


def _ddp(net: nn.Module, optimizer: torch.optim.Optimizer, _mode: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    return DistributedDataParallel(net, bucket_cap_mb=0.01), optimizer


def _parallel(net: nn.Module, optimizer: torch.optim.Optimizer, mode: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    return weft.torch.DataParallel(net, fusion=4096, mode=mode), optimizer


def _overlapped(net: nn.Module, optimizer: torch.optim.Optimizer, mode: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = weft.torch.DataParallel(net, fusion=4096, mode=mode)
    return model, weft.torch.Overlapped(optimizer, model)


def _divided(parameters: str) -> Wrapping:
    def wrap(net: nn.Module, optimizer: torch.optim.Optimizer, mode: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
        division.BLOCK_ELEMENTS = 64
        options: dict[str, Any] = {"shard": 2048, "parameters": parameters}
        model = weft.torch.DataParallel(net, fusion=4096, mode=mode, **options)
        return model, weft.torch.Overlapped(optimizer, model)

    return wrap


WRAPPINGS: dict[str, Wrapping] = {
    "ddp": _ddp, "parallel": _parallel, "overlapped": _overlapped,
    "divided": _divided("own"), "host": _divided("host"),
}  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """The training job."""

    wrapping: str = "ddp"
    every: int = 1
    width: int = 64
    with_mode: bool = False
    hosts: tuple[int, ...] = ()
    """The hosts on which the ranks seem to be where shares are kept; none: where they are."""

    @property
    def undivided(self) -> Recipe:
        """The same job, each rank with the whole update."""
        return replace(self, wrapping="overlapped") if self.wrapping in ("divided", "host") else self


@dataclass(frozen=True)
class Death:
    """Where a rank, by its first number, ends itself."""

    rank: int
    step: int
    place: str


@dataclass
class Outcome:
    """The report of a survivor."""

    hash: str = ""
    parts: list[tuple[int, list[int]]] = field(default_factory=list)
    """From which steps on which ranks trained, by their first numbers."""


class Training:
    """One rank's model, and the state that changes with it."""

    def __init__(self, recipe: Recipe) -> None:
        torch.manual_seed(1)
        width = recipe.width
        self.recipe = recipe
        self.net = nn.Sequential(
            nn.Linear(INPUTS, width), nn.BatchNorm1d(width), nn.Tanh(),
            nn.Linear(width, width), nn.Dropout(0.2), nn.Tanh(),
            nn.Linear(width, OUTPUTS),
        )  # fmt: skip
        self.optimizer: torch.optim.Optimizer = torch.optim.Adam(self.net.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.9)
        self.mode = PowerSGD(rank=2) if recipe.with_mode else None
        self.at: Callable[[str, int], None] = lambda _place, _step: None
        """Called at each place of a step."""

    @property
    def parts(self) -> list[Any]:
        return [self.net, self.optimizer, self.scheduler, *([self.mode] if self.mode else [])]

    def wrap(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        return WRAPPINGS[self.recipe.wrapping](self.net, self.optimizer, self.mode)

    def compute(self, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
        """A step, on this rank's part of its data."""
        rank, size = dist.get_rank(), dist.get_world_size()
        generator = torch.Generator().manual_seed(1000 * step + 10 * size + rank)
        inputs = torch.randn(SAMPLES, INPUTS, generator=generator)
        targets = torch.randn(SAMPLES, OUTPUTS, generator=generator)
        middle = self.net[3].register_forward_pre_hook(lambda *_: self.at("forward", step))
        self.at("before", step)
        optimizer.zero_grad()
        loss = mse_loss(model(inputs), targets)
        middle.remove()
        last = self.net[6].weight.register_hook(lambda _: self.at("backward", step))
        first = self.net[0].weight.register_hook(lambda _: self.at("all-reduce", step))
        loss.backward()
        last.remove()
        first.remove()
        self.at("step", step)
        optimizer.step()
        self.scheduler.step()
        self.at("after", step)

    def state(self) -> dict[str, Any]:
        """All of it, as bytes could be sent: tensors are copied."""
        parts = [part.state_dict() for part in self.parts]
        return {"parts": [_copied(part) for part in parts], "random": torch.get_rng_state()}

    def load(self, state: dict[str, Any]) -> None:
        for part, saved in zip(self.parts, state["parts"], strict=True):
            part.load_state_dict(saved)
        torch.set_rng_state(state["random"])

    def hash(self, optimizer_state: dict[str, Any]) -> str:
        """The hash of the state that is the same on all ranks: parameters, and the optimizer's
        state.
        """
        together = hashlib.blake2b(digest_size=8)
        for place, parameter in enumerate(self.net.parameters()):
            state = optimizer_state["state"][place]
            for tensor in (parameter, *(state[name] for name in sorted(state))):
                together.update(tensor.detach().numpy().tobytes())
        together.update(repr(self.scheduler.get_last_lr()).encode())
        return together.hexdigest()


def train_with_deaths(recipe: Recipe, rank: int, deaths: list[Death]) -> Outcome:
    """Trains with `Recovery`; ranks of `deaths` never return."""
    training = Training(recipe)
    recovery = weft.torch.Recovery(*training.parts, every=recipe.every)
    if recipe.hosts:
        shares.keepers = lambda hosts: keepers(recipe.hosts[: len(hosts)])
    mine = [death for death in deaths if death.rank == rank]

    def at(place: str, step: int) -> None:
        if any(death.place == place and death.step == step for death in mine):
            die()

    training.at = at
    for death in mine:
        _die_in_recovery(recovery, death)
    try:
        return recovered(training, recovery, rank)
    finally:
        shares.keepers = keepers


def recovered(training: Training, recovery: weft.torch.Recovery, rank: int) -> Outcome:
    """Trains to the end; the survivors report the same."""
    outcome = Outcome()

    def train(recovery: weft.torch.Recovery) -> None:
        model, optimizer = training.wrap()
        members: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(members, rank)
        if outcome.parts and outcome.parts[-1][0] == recovery.step:
            outcome.parts.pop()  # no step was done
        outcome.parts.append((recovery.step, members))
        if recovery.step == 0:
            torch.manual_seed(rank)
        while recovery.step < STEPS:
            training.compute(model, optimizer, recovery.step)
            recovery.commit()
        state_dict = optimizer.full_state_dict if isinstance(optimizer, weft.torch.Overlapped) else optimizer.state_dict
        outcome.hash = training.hash(state_dict())

    recovery.run(train)
    return outcome


def train_without_deaths(
    recipe: Recipe, state: dict[str, Any] | None, first: int, end: int
) -> tuple[str, dict[str, Any]]:
    """Trains plainly from a state, from a step on and up to another."""
    training = Training(recipe)
    if state is not None:
        training.load(state)
    model, optimizer = training.wrap()
    if state is None:
        torch.manual_seed(dist.get_rank())  # which are the first numbers
    for step in range(first, end):
        training.compute(model, optimizer, step)
    if isinstance(optimizer, weft.torch.Overlapped):
        optimizer.flush()
    if isinstance(model, weft.torch.DataParallel):
        model.unwrap()
    return training.hash(training.optimizer.state_dict()), training.state()


def _die_in_recovery(recovery: weft.torch.Recovery, death: Death) -> None:
    """Replaces the recovery's call at a place by death: its own code has no hooks."""
    from weft.api.group import Group
    from weft.torch.recovery import recovery as module

    def dies_in(owner: Any, name: str, when: Callable[[], bool] = lambda: True) -> None:
        original = getattr(owner, name)
        setattr(owner, name, lambda *given, **named: die() if when() else original(*given, **named))

    def committing() -> bool:
        return recovery.step > death.step

    states = recovery._states
    if death.place == "vote":
        dies_in(Group, "all_gather", committing)
        dies_in(vote, "meet", committing)
    elif death.place == "in the vote":
        for owner, name in ((Group, "all_gather"), (vote, "meet")):
            meet = getattr(owner, name)

            def half(*given: Any, meet: Any = meet) -> Any:
                if committing():
                    threading.Thread(target=die).start()
                return meet(*given)

            setattr(owner, name, half)
    elif death.place == "voted":
        dies_in(states, "keep", committing)
        dies_in(states, "_promote", committing)
    elif death.place == "copying":
        dies_in(states._copies[-1], "take", committing)
        dies_in(states._copies[-1], "take_rest", committing)
    elif death.place in ("saving", "updating"):
        for late in states._late:
            dies_in(late, "_save" if death.place == "saving" else "after_update", committing)
    elif death.place in ("sending", "sent"):
        share = Shares.prepare

        def send_and_die(one: Shares, divided: Any) -> None:
            if committing() and death.place == "sending":
                threading.Thread(target=die).start()
            share(one, divided)
            if committing():
                die()

        Shares.prepare = send_and_die  # type: ignore[method-assign]
    elif death.place in SHARE_PLACES:
        die_in_share(death.place, lambda: recovery.step >= death.step)
    elif death.place == "collecting":
        dies_in(Shares, "collect")
    elif death.place == "shrinking":
        dies_in(Group, "shrink")
    elif death.place == "agreeing":
        recover = recovery._recover

        def recover_and_die(failure: str) -> None:
            dies_in(Group, "all_gather")
            recover(failure)

        recovery._recover = recover_and_die  # type: ignore[method-assign]
    elif death.place == "meeting":
        dies_in(module, "meeting_of")
    elif death.place == "putting back":
        dies_in(recovery._states, "put_back")


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value
