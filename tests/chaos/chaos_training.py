"""One rank of a trial: overlapped training until failure, a check of the state, then more training.

The training of a trial is drawn from its seed. First all ranks train without overlap, with
undivided updates and without faults, and note every parameter and its part of the optimizer's
state after each step. The state of a rank later, when it takes a checkpoint and after the failure,
must be one of these. Of divided parameters, that holds of what the model gives to its program, not
of their memory.
"""

import copy
import hashlib
import os
import random
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
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

State = list[tuple[str, str]]
"""Two hashes for each parameter: of its values, and of its part of the optimizer's state."""


def live(member: ChaosMember, report: int, orders: int) -> None:
    """Trains until something fails, and continues with the ranks that the order names."""
    received = Orders(orders)
    torch.set_num_threads(1)
    os.environ["WEFT_TRANSPORT"] = member.transport
    os.environ["WEFT_PEER_TIMEOUT"] = str(member.peer_timeout_s)
    if member.interface is not None:
        os.environ["WEFT_INTERFACE"] = member.interface
    share_memory = member.interface is None and member.transport != "tcp"
    recipe = Recipe.draw(member.seed, share_memory=share_memory)
    if recipe.divides and not share_memory:
        # A reduce-scatter adds in another order than an all-reduce otherwise.
        os.environ["WEFT_REPRODUCIBLE"] = "1"
    _meet(member.store, member.rank, member.ranks)
    group = dist.new_group(timeout=timedelta(seconds=MEETING_S))
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
    def draw(seed: int, *, share_memory: bool) -> "Recipe":
        """The recipe of a trial; `share_memory`: whether the ranks do."""
        source = random.Random(seed)
        recipe = Recipe(
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
        one_copy = source.random() < 0.5 and recipe.divides and share_memory
        options = {**recipe.options, "parameters": "host" if one_copy else "own"}
        if recipe.divides:  # or algorithms of the reference add in another order
            options["algorithm"] = "automatic"
        return replace(recipe, options=options)

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

    @property
    def undivided_options(self) -> dict[str, Any]:
        """The options with which every rank updates all."""
        return {**self.options, "shard": "none", "parameters": "own"}

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
        self.loads = False
        """Whether the parameters are being set back to those of step 0."""
        self._wrap(recipe.network(), group, plan)
        self.beginning = _checkpoint(self.model, self.optimizer)
        self.checkpoint, self.checkpoint_steps = self.beginning, 0

    def _wrap(self, net: nn.Module, group: dist.ProcessGroup | None, plan: weft.torch.BucketPlan | None) -> None:
        self.names = [name for name, _ in net.named_parameters()]
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
            self.loads = True
            self._load(self.beginning)
            self.done, self.loads = 0, False

    def wrong_values(self) -> list[str]:
        """Returns the wrong values of a failed rank: none, if all is well."""
        wrong = [*self._wrong_in_memory(), *self._wrong_given()]
        if not self._is_right(self.checkpoint, self.checkpoint_steps):
            wrong.append(f"the checkpoint of step {self.checkpoint_steps} has changed")
        wrong += self._wrong_of_forward()
        with suppress(weft.Error):
            if not self._are_right(_values(self.model.state_dict(), self.names)):
                wrong.append(f"the model's state_dict is not the state after step {self.done}")
        try:
            whole = _checkpoint(self.model, self.optimizer)
        except weft.Error:
            return wrong
        if not self._is_right(whole, self.done):  # communication failed outside of the model
            wrong.append(f"state_dict gave what is not the state after step {self.done}")
        return wrong

    def _wrong_in_memory(self) -> list[str]:
        """Parameters that every rank updates whole: found by references that were kept."""
        buckets = self.model._reducer.buckets
        whole = {id(slot.parameter) for bucket in buckets if bucket.division is None for slot in bucket.slots}
        before, after = self.right[max(0, self.done - 1)], self.right[self.done]
        return [
            f"parameter {number} is neither that of step {self.done - 1} nor of step {self.done}"
            for number, found in enumerate(_hashes(self.parameters, self.inner))
            if id(self.parameters[number]) in whole and found not in (before[number], after[number])
        ]

    def _wrong_given(self) -> list[str]:
        """Parameters that a layer gets: all of a bucket are refused, or all are of one step."""
        wrong = []
        for bucket in self.model._reducer.buckets:
            numbers = [self.names.index(slot.name) for slot in bucket.slots]
            given: list[str] = []
            for number in numbers:
                with suppress(weft.Error):
                    given.append(_hash(self.model.module.get_parameter(self.names[number])))
            if given and given not in [[state[number][0] for number in numbers] for state in self._possible()]:
                wrong.append(f"bucket {bucket.number} gives {len(given)} of {len(numbers)} parameters, or wrong ones")
        return wrong

    def _wrong_of_forward(self) -> list[str]:
        """A forward that is not refused computes with the parameters of one step."""
        inputs = torch.ones(SAMPLES, INPUTS)
        try:
            found = self.model(inputs)
        except weft.Error:
            return []
        if not self.recipe.divides:  # or the state of the optimizer could not be gathered
            return ["forward did not raise"]
        net = self.recipe.network()
        net.load_state_dict(self.model.module.state_dict())  # which is compared with the right one
        return [] if torch.equal(found, net(inputs)) else ["forward has computed with other parameters"]

    def _possible(self) -> list[State]:
        """The states that the program may be given: that of the last `step`."""
        return [self.right[self.done], *([self.right[0]] if self.loads else [])]

    def _are_right(self, values: list[str]) -> bool:
        return any(values == [value for value, _ in state] for state in self._possible())

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
        with self.model.exclusive():
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
    """Trains without overlap, undivided; the buckets, and the states before and after each step."""
    net = recipe.network()
    parameters = list(net.parameters())
    model = weft.torch.DataParallel(net, group, plan=plan, **recipe.undivided_options)
    optimizer = recipe.optimizer(parameters)
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
        hashes.append((_hash(parameter), _hash(*(state[name] for name in sorted(state)))))
    return hashes


def _values(model: dict[str, Tensor], names: list[str]) -> list[str]:
    """The hashes of a model's parameters, from its `state_dict`."""
    return [_hash(model[f"module.{name}"]) for name in names]


def _hash(*values: object) -> str:
    together = hashlib.blake2b(digest_size=8)
    for value in values:
        if isinstance(value, Tensor):
            together.update(value.detach().numpy().tobytes())
    return together.hexdigest()


def _meet(store: str, rank: int, ranks: int) -> None:
    dist.init_process_group(
        "weft",
        store=dist.FileStore(store, ranks),
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=MEETING_S),
    )
