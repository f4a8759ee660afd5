"""One rank of a trial: overlapped training until failure, a check of the state, then more training.

The training of a trial is drawn from its seed. First all ranks train without overlap and without
faults, and note what every parameter and its part of the optimizer's state are after each step. The
state of a rank later, when it takes a checkpoint and after the failure, must be one of these.
"""

import copy
import hashlib
import os
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch._dynamo  # which optimizers import when they are made: once here, not in every rank
import torch.distributed as dist
from chaos_member import ChaosMember, Orders, fork_sleeper, say, say_failure
from torch import Tensor, nn
from torch.nn.functional import mse_loss

import weft
import weft.torch
from weft.torch.lookup import backend_of

STEPS = 40
STEPS_AFTERWARDS = 3
STEPS_BETWEEN_CHECKPOINTS_MAX = 5
WIDTH_MAX = 512
SAMPLES, INPUTS, OUTPUTS = 4, 8, 3
MEETING_S = 30.0
"""The time within which ranks must meet, before faults and after them."""

State = list[str]
"""A hash for each parameter, its part of the optimizer's state included."""


def live(member: ChaosMember, report: int, orders: int) -> None:
    """Trains until something fails, and continues with the ranks that the order names."""
    received = Orders(orders)
    torch.set_num_threads(1)
    os.environ["WEFT_TRANSPORT"] = member.transport
    os.environ["WEFT_PEER_TIMEOUT"] = str(member.peer_timeout_s)
    if member.interface is not None:
        os.environ["WEFT_INTERFACE"] = member.interface
    _meet(member.store, member.rank, member.ranks)
    group = dist.new_group(timeout=timedelta(seconds=MEETING_S))
    recipe = Recipe.draw(member.seed)
    training = OverlappedTraining(recipe, member.rank, group)
    if member.forks:
        say(report, event="forked", child=fork_sleeper())
    dist.barrier(group)
    backend_of(group).set_timeout(timedelta(seconds=member.timeout_s))
    say(report, event="ready")
    try:
        training.train_forever()
    except weft.Error as error:
        say_failure(report, error)
    say(report, event="checked", wrong=training.wrong_values())
    while (order := received.next()) is not None and order["order"] != "close":
        say(report, event="went on", wrong=training.go_on(order["store"], order["rank"], order["ranks"]))
    dist.destroy_process_group()


@dataclass(frozen=True)
class Recipe:
    """The model and its training: the same on all ranks."""

    seed: int
    width: int
    normalizes: bool
    """Whether it has a BatchNorm, whose buffers are broadcast before each forward."""
    adaptive: bool
    clips: bool
    steps_between_checkpoints: int
    options: dict[str, Any]
    """Of `DataParallel`. Buckets are not planned by measurements: the bits must repeat."""

    @staticmethod
    def draw(seed: int) -> "Recipe":
        """The recipe of a trial."""
        source = random.Random(seed)
        return Recipe(
            seed=seed,
            width=int(WIDTH_MAX ** source.uniform(0.5, 1)),
            normalizes=source.random() < 0.3,
            adaptive=source.random() < 0.5,
            clips=source.random() < 0.2,
            steps_between_checkpoints=source.randint(1, STEPS_BETWEEN_CHECKPOINTS_MAX),
            options={
                "fusion": source.choice(("none", 4096, 1 << 20)),
                "algorithm": source.choice(("automatic", "hybrid")),
                "gradients": source.choice(("copy", "view")),
                "shard": source.choice(("none", 1, 4096)),
            },
        )

    def network(self) -> nn.Module:
        """A small network, large enough that its messages take several tiles."""
        torch.manual_seed(self.seed)
        norm = [nn.BatchNorm1d(self.width)] if self.normalizes else []
        return nn.Sequential(
            nn.Linear(INPUTS, self.width), *norm, nn.Tanh(),
            nn.Linear(self.width, self.width), nn.Tanh(),
            nn.Linear(self.width, OUTPUTS),
        )  # fmt: skip

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """An optimizer with state."""
        if self.adaptive:
            return torch.optim.Adam(parameters, lr=0.001)
        return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)

    def batches(self, rank: int, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
        """A rank's data, again and again the same."""
        generator = torch.Generator().manual_seed(1000 * self.seed + rank)
        for _ in range(steps):
            yield torch.randn(SAMPLES, INPUTS, generator=generator), torch.randn(SAMPLES, OUTPUTS, generator=generator)

    @property
    def divides(self) -> bool:
        """Whether each rank updates its share only."""
        return self.options["shard"] != "none"

    def hashes_of(self, checkpoint: dict[str, Any]) -> State:
        """The hashes of the parameters and the optimizer's state of a checkpoint."""
        net = self.network()
        net.load_state_dict({key.removeprefix("module."): value for key, value in checkpoint["model"].items()})
        parameters = list(net.parameters())
        optimizer = self.optimizer(parameters)
        optimizer.load_state_dict(checkpoint["optimizer"])
        return _hashes(parameters, optimizer)

    def step(self, model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[Tensor, Tensor]) -> None:
        """One step of a user's training loop."""
        inputs, targets = batch
        optimizer.zero_grad()
        mse_loss(model(inputs), targets).backward()
        if self.clips:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()


class OverlappedTraining:
    """A rank's training, with the states that it may have."""

    def __init__(self, recipe: Recipe, rank: int, group: dist.ProcessGroup) -> None:
        """Trains without overlap first; then makes the model whose training is to fail."""
        self.recipe = recipe
        self.rank = rank
        plan, self.right = _plain_training(recipe, rank, group)
        self.done = 0
        """Steps whose `step` has returned, since training last began."""
        self._wrap(recipe.network(), group, plan)
        self.beginning = _checkpoint(self.model, self.optimizer)
        self.checkpoint, self.checkpoint_steps = self.beginning, 0

    def _wrap(self, net: nn.Module, group: dist.ProcessGroup | None, plan: weft.torch.BucketPlan | None) -> None:
        self.parameters = list(net.parameters())
        self.model = weft.torch.DataParallel(net, group, plan=plan, **self.recipe.options)
        self.inner = self.recipe.optimizer(self.parameters)
        self.optimizer = weft.torch.Overlapped(self.inner, self.model)

    def train_forever(self) -> None:
        """Trains `STEPS` steps again and again, with checkpoints, until something raises."""
        while True:
            for batch in self.recipe.batches(self.rank, STEPS):
                self.recipe.step(self.model, self.optimizer, batch)
                self.done += 1
                if self.done % self.recipe.steps_between_checkpoints == 0:
                    self._save()
            self._load(self.beginning)
            self.done = 0

    def wrong_values(self) -> list[str]:
        """Returns the wrong values of a failed rank: none, if all is well."""
        wrong = []
        before, after = self.right[max(0, self.done - 1)], self.right[self.done]
        # Where updates are divided, shares of both steps may be in memory.
        present = [] if self.recipe.divides else _hashes(self.parameters, self.inner)
        for number, found in enumerate(present):
            if found not in (before[number], after[number]):
                wrong.append(f"parameter {number} is neither that of step {self.done - 1} nor of step {self.done}")
        if not self._is_right(self.checkpoint, self.checkpoint_steps):
            wrong.append(f"the checkpoint of step {self.checkpoint_steps} has changed")
        try:
            self.model(torch.ones(SAMPLES, INPUTS))
            if not self.recipe.divides:  # or the state of the optimizer could not be gathered
                wrong.append("forward did not raise")
        except weft.Error:
            pass
        try:
            whole = _checkpoint(self.model, self.optimizer)
        except weft.Error:
            return wrong
        if not self._is_right(whole, self.done):  # communication failed outside of the model
            wrong.append(f"state_dict gave what is not the state after step {self.done}")
        return wrong

    def go_on(self, store: str, rank: int, ranks: int) -> list[str]:
        """Follows docs/how-to/training.md after a failure; returns wrong values then."""
        dist.destroy_process_group()
        _meet(store, rank, ranks)
        saved = [self.checkpoint]
        dist.broadcast_object_list(saved, 0)
        self._wrap(self.model.unwrap(), None, None)
        self._load(saved[0])
        _, right = _plain_training(self.recipe, rank, None, saved[0], self.model.plan, STEPS_AFTERWARDS)
        for batch in self.recipe.batches(rank, STEPS_AFTERWARDS):
            self.recipe.step(self.model, self.optimizer, batch)
        self.optimizer.flush()
        mine = self.recipe.hashes_of(_checkpoint(self.model, self.optimizer))
        every: list[Any] = [None] * ranks
        dist.all_gather_object(every, mine)
        wrong = [f"afterwards it has other parameters than rank {n}" for n, other in enumerate(every) if other != mine]
        if mine != right[STEPS_AFTERWARDS]:
            wrong.append("afterwards it has other parameters than training without overlap")
        return wrong

    def _save(self) -> None:
        checkpoint = _checkpoint(self.model, self.optimizer)
        if not self._is_right(checkpoint, self.done):
            raise AssertionError(f"the checkpoint after step {self.done} is not the state after that step")
        self.checkpoint, self.checkpoint_steps = checkpoint, self.done

    def _load(self, checkpoint: dict[str, Any]) -> None:
        self.model.load_state_dict(checkpoint["model"])
        self.optimizer.load_state_dict(copy.deepcopy(checkpoint["optimizer"]))  # it would train on these tensors

    def _is_right(self, checkpoint: dict[str, Any], steps: int) -> bool:
        """Whether a checkpoint holds the parameters and the optimizer's state of this step."""
        return self.recipe.hashes_of(checkpoint) == self.right[steps]


def _plain_training(
    recipe: Recipe,
    rank: int,
    group: dist.ProcessGroup | None,
    checkpoint: dict[str, Any] | None = None,
    plan: weft.torch.BucketPlan | None = None,
    steps: int = STEPS,
) -> tuple[weft.torch.BucketPlan, list[State]]:
    """Trains without overlap; the buckets, and the state before the first step and after each."""
    net = recipe.network()
    parameters = list(net.parameters())
    model = weft.torch.DataParallel(net, group, plan=plan, **recipe.options)
    optimizer = recipe.optimizer(parameters)
    if recipe.divides:  # between hosts, a reduce-scatter adds in another order than an all-reduce
        optimizer = weft.torch.Overlapped(optimizer, model, defer=False)
    if checkpoint is not None:
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(copy.deepcopy(checkpoint["optimizer"]))

    def present() -> State:
        return recipe.hashes_of(_checkpoint(model, optimizer))

    states = [present()]
    for batch in recipe.batches(rank, steps):
        recipe.step(model, optimizer, batch)
        states.append(present())
    model.unwrap()
    return model.plan, states


def _checkpoint(model: weft.torch.DataParallel, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Returns copies of the values that a program would write to a file."""
    overlapped = isinstance(optimizer, weft.torch.Overlapped)
    state = optimizer.full_state_dict() if overlapped else optimizer.state_dict()
    return copy.deepcopy({"model": model.state_dict(), "optimizer": state})


def _hashes(parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer) -> State:
    """Returns the parameters as they are in memory, without waiting."""
    hashes = []
    for parameter in parameters:
        state = optimizer.state.get(parameter, {})
        together = hashlib.blake2b(digest_size=8)
        for tensor in (parameter, *(state[name] for name in sorted(state))):
            if isinstance(tensor, Tensor):
                together.update(tensor.detach().numpy().tobytes())
        hashes.append(together.hexdigest())
    return hashes


def _meet(store: str, rank: int, ranks: int) -> None:
    dist.init_process_group(
        "weft",
        store=dist.FileStore(store, ranks),
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=MEETING_S),
    )
