"""Training loops made of random actions, which all ranks draw from one seed.

A `Loop` carries out the actions of a `Program`, and keeps what a user would see: gradients,
weights, states, outputs.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import random
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from overlap_setup import INPUTS, OUTPUTS, SAMPLES, Result, Setup, result, whole_state
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.utils.checkpoint import checkpoint

import weft.torch
from weft.torch import modes

__all__ = ["Loop", "Program", "Ways"]

HIDDEN = 9
WAYS = 16
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda groups: torch.optim.SGD(groups, lr=0.01),
    "sgd-momentum": lambda groups: torch.optim.SGD(groups, lr=0.01, momentum=0.9, weight_decay=0.01),
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=0.003),
    "adamw-fused": lambda groups: torch.optim.AdamW(groups, lr=0.003, fused=True),
    "adam-amsgrad-foreach": lambda groups: torch.optim.Adam(groups, lr=0.003, amsgrad=True, foreach=True),
    "adagrad": lambda groups: torch.optim.Adagrad(groups, lr=0.01),
    "rmsprop": lambda groups: torch.optim.RMSprop(groups, lr=0.003, momentum=0.5),
}
MODES: dict[str, Callable[[], modes.Mode]] = {
    "bf16": lambda: modes.Wire("bf16"),
    "power-sgd": lambda: modes.PowerSGD(rank=1),
    "one-bit": modes.OneBit,
    "deep-gradient-compression": lambda: modes.DeepGradientCompression(0.2),
}
DIVISIONS: list[dict[str, Any]] = [{}, {"shard": 1}, {"shard": 150}, {"shard": 1, "parameters": "host"}]

Action = Callable[["Loop", random.Random], None]
ACTIONS: dict[str, Action] = {}
WEIGHTS: dict[str, int] = {}


@dataclass(frozen=True)
class Program:
    """The options of a loop, and its actions, each with the seed of what it draws itself."""

    size: int
    optimizers: Sequence[str]
    mode: str
    has_norm: bool
    has_groups: bool
    has_schedule: bool
    adds_group: bool
    options: dict[str, Any]
    division: dict[str, Any]
    virtual_ranks: int
    actions: Sequence[tuple[str, int]]

    @classmethod
    def drawn(cls, seed: int, length: int) -> Program:
        rng = random.Random(seed)
        has_norm = rng.random() < 0.4
        options = {"fusion": rng.choice((1, 200, 500, 1 << 20))}
        virtual_ranks = rng.choice((0, 0, 0, 3, 4, 5, 8))
        if virtual_ranks:
            options |= {"virtual_ranks": virtual_ranks, "balance_every": rng.choice((None, 2))}
        else:
            options["gradients"] = rng.choice(("copy", "copy", "view"))
            options["buffers"] = rng.choice(("broadcast", "average")) if has_norm else "leave"
        mode = "" if virtual_ranks or rng.random() < 0.7 else rng.choice(list(MODES))
        names = rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=length)
        return cls(
            rng.choice((2, 3)),
            rng.sample(list(OPTIMIZERS), rng.choice((1, 1, 2))),
            mode,
            has_norm,
            rng.random() < 0.3,
            rng.random() < 0.3,
            rng.random() < 0.3,
            options,
            rng.choice(DIVISIONS[: 1 if mode else None]),
            virtual_ranks,
            [(name, rng.getrandbits(30)) for name in names],
        )


class Ways(nn.Module):
    """Uses its layers as the caller says; two share a weight, and one is used twice."""

    def __init__(self, *, has_norm: bool) -> None:
        super().__init__()
        self.first = nn.Linear(INPUTS, HIDDEN)
        self.norm = nn.BatchNorm1d(HIDDEN) if has_norm else nn.Identity()
        self.twice = nn.Linear(HIDDEN, HIDDEN)
        self.sometimes = nn.Linear(HIDDEN, HIDDEN)
        self.part = nn.Sequential(nn.Linear(HIDDEN, 11), nn.Tanh(), nn.Linear(11, HIDDEN))
        self.scale = nn.Parameter(torch.ones(HIDDEN))
        self.tied = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.tied.weight = self.twice.weight
        self.last = nn.Linear(HIDDEN, OUTPUTS)

    def forward(self, inputs: Tensor, way: int) -> Tensor:
        hidden = torch.tanh(self.twice(torch.tanh(self.norm(self.first(inputs)))))
        if way & 1:
            hidden = torch.relu(self.sometimes(hidden)) + hidden
        if way & 2:
            hidden = self.part(hidden)
        if way & 4:
            hidden = hidden * self.scale
        if way & 8:
            hidden = self.tied(hidden)
        return self.last(torch.tanh(self.twice(hidden)))


@contextlib.contextmanager
def checkpointed(net: Ways) -> Iterator[None]:
    """A block in which two layers keep no activations for backward."""
    layers = (net.part, net.sometimes)
    for layer in layers:
        layer.forward = functools.partial(checkpoint, layer.forward, use_reentrant=False)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


class Loop:
    """A model in training, overlapped or plain."""

    def __init__(self, setup: Setup, plans: list[weft.torch.BucketPlan], rank: int, program: Program) -> None:
        """An overlapped loop adds its plans, which the plain one then uses."""
        self.setup, self.plans, self.rank, self.program = setup, plans, rank, program
        self.alone = torch.distributed.new_subgroups(1)[0] if self.is_alone else None
        self.seen: list[Tensor] = []
        self.saved: tuple[Any, Any] | None = None
        self.has_added_group = False
        self.scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=2)
        self.begin()

    def run(self) -> Result:
        """Carries out the program; returns what was seen, and the final state."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for place, (name, seed) in enumerate(self.program.actions):
                try:
                    ACTIONS[name](self, random.Random(seed))
                except Exception as error:
                    error.add_note(f"in action {place}, {name}")
                    raise
            found = {str(number): value for number, value in enumerate(self.seen)}
            for number, optimizer in enumerate(self.optimizers):
                found |= {f"{number} {key}": value for key, value in result(self.model, optimizer).items()}
            return found

    def begin(self) -> None:
        torch.manual_seed(0 if self.is_alone else self.rank)
        self.net: Any = Ways(has_norm=self.program.has_norm)
        self.wrap()

    def wrap(self) -> None:
        """The plan has no effect on the bits of virtual ranks."""
        self.setup.plan = None if self.setup.overlapped or self.is_alone else self.plans.pop(0)
        group = {"process_group": self.alone} if self.is_alone else {}
        names = iter(self.program.optimizers)
        self.model, first = self.setup(
            self.net, lambda _: self.make_optimizer(next(names), 0), **self.program.options, **group
        )
        others = [self.setup.overlap(self.make_optimizer(name, 1), self.model) for name in names]
        self.optimizers = [first, *others]
        self.schedules = [torch.optim.lr_scheduler.StepLR(one, 2, 0.9) for one in self.optimizers]
        if self.setup.overlapped:
            self.plans.append(self.model.plan)

    def make_optimizer(self, name: str, number: int) -> torch.optim.Optimizer:
        """With its part of the parameters, but for those of a group that is to be added."""
        groups: Any = list(self.net.parameters())[number :: len(self.program.optimizers)]
        late = set(self.late_parameters()) if self.program.adds_group else set()
        groups = [parameter for parameter in groups if parameter not in late]
        if self.program.has_groups:
            groups = [{"params": groups[::2], "lr": 0.004}, {"params": groups[1::2]}]
        optimizer = OPTIMIZERS[name](groups)
        if number == 0 and self.has_added_group:
            optimizer.add_param_group({"params": self.late_parameters(), "lr": 0.002})
        return optimizer

    def late_parameters(self) -> list[nn.Parameter]:
        return list(self.net.sometimes.parameters())

    def states(self) -> Any:
        return copy.deepcopy([whole_state(optimizer) for optimizer in self.optimizers])

    def load_states(self, states: Any) -> None:
        for optimizer, state in zip(self.optimizers, copy.deepcopy(states), strict=True):
            optimizer.load_state_dict(state)

    @property
    def parameters(self) -> list[nn.Parameter]:
        return list(self.model.parameters())

    def see(self, *values: Tensor | None) -> None:
        self.seen += [torch.tensor([]) if value is None else value.detach().clone() for value in values]

    def parts(self, rng: random.Random) -> Iterator[tuple[int, Callable[[], Tensor]]]:
        """This rank's parts of a step, one or its virtual ranks, and what computes their losses."""
        parts = self.model.parts(list(self.model.virtual_ranks)) if self.program.virtual_ranks else [self.rank]
        draws = rng.getrandbits(30)
        for part in parts:
            yield part, functools.partial(self.loss, random.Random(draws), part)

    def loss(self, rng: random.Random, part: int | None = None) -> Tensor:
        """Of new samples; some parameters are used by no part, and some by part 0 only."""
        part = self.rank if part is None else part
        way, others, differs = rng.randrange(WAYS), rng.randrange(WAYS), rng.random() < 0.4
        if part > 0 and differs:
            way = others
        samples = torch.Generator().manual_seed(rng.getrandbits(30) + part)
        inputs = torch.randn(SAMPLES, INPUTS, generator=samples)
        return mse_loss(self.model(inputs, way), torch.randn(SAMPLES, OUTPUTS, generator=samples))

    def backward(self, rng: random.Random) -> None:
        for _, compute in self.parts(rng):
            compute().backward()

    @property
    def is_alone(self) -> bool:
        """Whether this rank carries all virtual ranks."""
        return bool(self.program.virtual_ranks) and not self.setup.overlapped

    @property
    def is_divided(self) -> bool:
        """Also of the plain loop that it is compared with."""
        return bool(self.program.division)

    def exclusive(self) -> contextlib.AbstractContextManager[Any]:
        """Where the program changes parameters."""
        is_shared = self.setup.division["parameters"] == "host"
        return self.model.exclusive() if is_shared else contextlib.nullcontext()


def action(weight: int = 1) -> Callable[[Action], Action]:
    def add(function: Action) -> Action:
        ACTIONS[function.__name__], WEIGHTS[function.__name__] = function, weight
        return function

    return add


# Backward and step.


@action(22)
def backward(loop: Loop, rng: random.Random) -> None:
    loop.backward(rng)


@action(6)
def accumulate(loop: Loop, rng: random.Random) -> None:
    several = rng.randrange(1, 3)
    with contextlib.nullcontext() if loop.program.virtual_ranks else loop.model.no_sync():
        for _ in range(several):
            loop.backward(rng)
    loop.backward(rng)


@action(3)
def backward_of_two_losses(loop: Loop, rng: random.Random) -> None:
    if not loop.program.has_norm:  # whose buffers a second forward changes
        for _, compute in loop.parts(rng):
            (compute() + compute()).backward()


@action()
def backward_twice(loop: Loop, rng: random.Random) -> None:
    for _, compute in loop.parts(rng):
        if loop.program.virtual_ranks:
            with loop.model.no_sync():
                compute().backward()
            compute().backward()
        else:
            loss = compute()
            loss.backward(retain_graph=True)
            loss.backward()


@action()
def backward_of_some_parts(loop: Loop, rng: random.Random) -> None:
    if loop.program.virtual_ranks:
        used = [rng.random() < 0.5 for _ in range(loop.program.virtual_ranks)]
        for part, compute in loop.parts(rng):
            if used[part]:
                compute().backward()


@action()
def gradients_alone(loop: Loop, rng: random.Random) -> None:
    """They are this rank's own."""
    if not loop.program.virtual_ranks:
        loop.see(*torch.autograd.grad(loop.loss(rng), [loop.net.last.weight]))


@action()
def forward_without_backward(loop: Loop, rng: random.Random) -> None:
    if not loop.program.virtual_ranks:
        loop.see(loop.loss(rng))


@action()
def backward_under_autocast(loop: Loop, rng: random.Random) -> None:
    for _, compute in loop.parts(rng):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = compute()
        loss.backward()


@action()
def backward_of_the_module_itself(loop: Loop, rng: random.Random) -> None:
    """Which the wrapper learns of by its gradients."""
    if not loop.program.virtual_ranks:
        loop.net(torch.full((SAMPLES, INPUTS), float(loop.rank)), rng.randrange(WAYS)).sum().backward()


@action()
def backward_of_the_earlier_forward(loop: Loop, rng: random.Random) -> None:
    if not loop.program.virtual_ranks and not loop.program.has_norm:
        first, second = loop.loss(rng), loop.loss(rng)
        first.backward()
        if rng.random() < 0.5:
            second.backward()


@action()
def zero_between_forward_and_backward(loop: Loop, rng: random.Random) -> None:
    for _, compute in loop.parts(rng):
        loss = compute()
        if not loop.program.virtual_ranks:
            rng.choice((loop.optimizers[0], loop.model)).zero_grad()
        loss.backward()


@action()
def backward_to_some_parameters(loop: Loop, rng: random.Random) -> None:
    for _, compute in loop.parts(rng):
        compute().backward(inputs=[loop.net.last.weight, loop.net.last.bias])


@action()
def backward_with_a_penalty(loop: Loop, rng: random.Random) -> None:
    """Of the weights, and of gradients that autograd computes before."""
    for _, compute in loop.parts(rng):
        loss = compute()
        (gradient,) = torch.autograd.grad(loss, [loop.net.last.weight], create_graph=True)
        (loss + gradient.square().sum() + loop.net.twice.weight.square().sum()).backward()


@action()
def backward_with_checkpointing(loop: Loop, rng: random.Random) -> None:
    for _, compute in loop.parts(rng):
        with checkpointed(loop.net):
            loss = compute()
        loss.backward()


@action(26)
def step(loop: Loop, rng: random.Random) -> None:
    for optimizer in rng.sample(loop.optimizers, rng.randint(1, len(loop.optimizers))):
        optimizer.step()


@action()
def step_schedules(loop: Loop, _: random.Random) -> None:
    if loop.program.has_schedule:
        for schedule in loop.schedules:
            schedule.step()


@action()
def add_group(loop: Loop, _: random.Random) -> None:
    if loop.program.adds_group and not loop.has_added_group:
        loop.has_added_group = True
        loop.optimizers[0].add_param_group({"params": loop.late_parameters(), "lr": 0.002})


@action()
def step_with_closure(loop: Loop, rng: random.Random) -> None:
    def evaluate() -> Tensor:
        loop.model.zero_grad()
        losses = []
        for _, compute in loop.parts(rng):
            losses.append(compute())
            losses[-1].backward()
        return losses[0] if not loop.program.virtual_ranks else torch.tensor(loop.model.mean_over_parts(losses))

    loop.see(rng.choice(loop.optimizers).step(evaluate))  # type: ignore[arg-type]


@action(14)
def zero(loop: Loop, rng: random.Random) -> None:
    of = rng.choice((*loop.optimizers, loop.model, loop.net))
    of.zero_grad(set_to_none=rng.random() < 0.7)


@action(3)
def scaled_step(loop: Loop, rng: random.Random) -> None:
    """With a loss that overflows in a part at times; residuals of modes do not follow the scale."""
    if loop.program.mode not in ("", "bf16"):
        return
    loop.model.zero_grad()
    overflows, clips = rng.random() < 0.3, rng.random() < 0.5
    for part, compute in loop.parts(rng):
        loss = compute()
        loop.scaler.scale(loss * float("inf") if overflows and part == 0 else loss).backward()
    if clips:
        for optimizer in loop.optimizers:
            loop.scaler.unscale_(optimizer)
        loop.see(torch.nn.utils.clip_grad_norm_(loop.parameters, 0.5).nan_to_num())
    for optimizer in loop.optimizers:
        loop.scaler.step(optimizer)
    loop.scaler.update()
    loop.model.zero_grad()


@action(3)
def late_rank(loop: Loop, rng: random.Random) -> None:
    if loop.rank == rng.randrange(loop.program.size):
        time.sleep(rng.random() / 100)


# Gradients.


@action(3)
def read_gradients(loop: Loop, rng: random.Random) -> None:
    parameters = loop.parameters
    loop.see(*(parameter.grad for parameter in rng.sample(parameters, rng.choice((1, len(parameters))))))


@action()
def read_gradients_on_some_ranks(loop: Loop, rng: random.Random) -> None:
    if not loop.is_divided and loop.rank % 2 == rng.randrange(2):
        loop.see(loop.net.sometimes.weight.grad, loop.net.last.weight.grad)


@action()
def scale_gradients(loop: Loop, _: random.Random) -> None:
    for parameter in loop.parameters:
        if parameter.grad is not None:
            parameter.grad.mul_(0.5)


@action()
def clip(loop: Loop, _: random.Random) -> None:
    loop.see(torch.nn.utils.clip_grad_norm_(loop.parameters, 0.5))


@action()
def drop_a_gradient(loop: Loop, rng: random.Random) -> None:
    rng.choice(loop.parameters).grad = None


@action()
def set_a_gradient(loop: Loop, rng: random.Random) -> None:
    """The same on all ranks."""
    parameter = rng.choice(loop.parameters)
    parameter.grad = torch.full_like(parameter, rng.random())


@action()
def clip_values(loop: Loop, _: random.Random) -> None:
    if any(parameter.grad is not None for parameter in loop.parameters):  # else torch fails
        torch.nn.utils.clip_grad_value_(loop.parameters, 0.1)


@action()
def zero_a_gradient(loop: Loop, rng: random.Random) -> None:
    gradient = rng.choice(loop.parameters).grad
    if gradient is not None:
        gradient.zero_()


# Parameters.


@action(2)
def read_weights_on_some_ranks(loop: Loop, rng: random.Random) -> None:
    if loop.rank % 2 == rng.randrange(2):
        loop.see(loop.net.last.weight, loop.net.scale)
        if rng.random() < 0.5:
            loop.see(*loop.net.parameters())


@action()
def change_weights(loop: Loop, rng: random.Random) -> None:
    with loop.exclusive(), torch.no_grad():
        loop.net.last.weight.mul_(1 - rng.random() / 10)


@action()
def change_data(loop: Loop, rng: random.Random) -> None:
    with loop.exclusive():
        loop.net.part[0].bias.data.add_(rng.random() / 100)


@action()
def evaluate(loop: Loop, rng: random.Random) -> None:
    loop.model.eval()
    with torch.no_grad():
        loop.see(loop.loss(rng))
    loop.model.train()


@action()
def evaluate_a_part_on_one_rank(loop: Loop, rng: random.Random) -> None:
    if loop.rank == rng.randrange(loop.program.size):
        with torch.inference_mode():
            loop.see(loop.net.part(torch.ones(2, HIDDEN)))


@action()
def freeze_or_unfreeze(loop: Loop, rng: random.Random) -> None:
    rng.choice((loop.net.part, loop.net.sometimes, loop.net.first)).requires_grad_(rng.random() < 0.5)


@action()
def replace_data(loop: Loop, rng: random.Random) -> None:
    factor = 1 - rng.random() / 10
    with loop.exclusive():
        loop.net.first.bias.data = loop.net.first.bias.data * factor


@action()
def initialize_a_layer(loop: Loop, rng: random.Random) -> None:
    with loop.exclusive():
        torch.nn.init.constant_(rng.choice((loop.net.last, loop.net.sometimes)).bias, rng.random() / 10)


@action()
def all_from_a_vector(loop: Loop, rng: random.Random) -> None:
    factor = 1 - rng.random() / 10
    with loop.exclusive(), torch.no_grad():
        vector = torch.nn.utils.parameters_to_vector(loop.net.parameters()) * factor
        torch.nn.utils.vector_to_parameters(vector, loop.net.parameters())


@action()
def swap_in_an_average(loop: Loop, _: random.Random) -> None:
    """As evaluation with averaged weights does."""
    kept = copy.deepcopy(loop.net.state_dict())
    with loop.exclusive():
        loop.net.load_state_dict(
            {key: value * 0.5 if value.is_floating_point() else value for key, value in kept.items()}
        )
    loop.model.eval()
    with torch.no_grad():
        loop.see(loop.model(torch.ones(SAMPLES, INPUTS), 15))
    loop.model.train()
    with loop.exclusive():
        loop.net.load_state_dict(kept)


@action()
def call_with_other_weights(loop: Loop, rng: random.Random) -> None:
    weights = {name: value.detach() * 0.9 for name, value in loop.net.named_parameters()}
    way = rng.randrange(WAYS)
    with torch.no_grad():
        loop.see(torch.func.functional_call(loop.net, weights, (torch.ones(SAMPLES, INPUTS), way)))


# States.


@action()
def save(loop: Loop, _: random.Random) -> None:
    loop.saved = copy.deepcopy(loop.model.state_dict()), loop.states()
    loop.see(*loop.saved[0].values())


@action()
def load(loop: Loop, rng: random.Random) -> None:
    if loop.saved is not None:
        with loop.exclusive():
            loop.model.load_state_dict(loop.saved[0])
        counts = [[len(state["param_groups"]) for state in states] for states in (loop.saved[1], loop.states())]
        if counts[0] == counts[1] and rng.random() < 0.7:
            loop.load_states(loop.saved[1])


@action()
def resume_in_a_new_model(loop: Loop, _: random.Random) -> None:
    model, states = copy.deepcopy(loop.model.state_dict()), loop.states()
    loop.begin()
    with loop.exclusive():
        loop.model.load_state_dict(model)
    loop.load_states(states)


@action()
def wrap_again(loop: Loop, _: random.Random) -> None:
    """Without gradients: those of divided updates end with the wrapper."""
    states = loop.states()
    loop.model.zero_grad()
    loop.net = loop.model.unwrap()
    loop.wrap()
    loop.load_states(states)


@action()
def copy_or_pickle(loop: Loop, rng: random.Random) -> None:
    file = io.BytesIO()
    torch.save(loop.net, file)
    file.seek(0)
    copied = copy.deepcopy(loop.model) if rng.random() < 0.5 else torch.load(file, weights_only=False)
    loop.see(*copied.state_dict().values())


@action()
def read_optimizer_state(loop: Loop, rng: random.Random) -> None:
    if not loop.is_divided:
        states = rng.choice(loop.optimizers).state
        for parameter in loop.parameters:
            loop.see(*(value for value in states.get(parameter, {}).values() if isinstance(value, Tensor)))


@action()
def flush(loop: Loop, rng: random.Random) -> None:
    if loop.setup.overlapped:
        rng.choice((loop.model, *loop.optimizers)).flush()


@action()
def change_learning_rate(loop: Loop, rng: random.Random) -> None:
    for group in rng.choice(loop.optimizers).param_groups:
        group["lr"] *= 0.5 + rng.random()


@action()
def other_plan(loop: Loop, rng: random.Random) -> None:
    buckets = rng.sample(loop.model.plan.buckets, len(loop.model.plan.buckets))
    loop.model._reducer.use_plan(weft.torch.BucketPlan(loop.model.plan.parameters, tuple(buckets)))
