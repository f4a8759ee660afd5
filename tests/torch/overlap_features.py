"""What training loops do, one function each: overlapped or not, they give the same bits.

Each takes what makes model and optimizer, and the rank, trains, and returns what is compared.
"""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, mse_loss
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint

import weft.torch

STEPS = 100
SAMPLES, INPUTS, OUTPUTS = 3, 6, 2

Result = dict[str, Tensor]
Feature = Callable[["Setup", int], Result]
FEATURES: dict[str, Feature] = {}


class Setup:
    """Makes a model and its optimizer: overlapped, or plain by the overlapped one's plan."""

    def __init__(self, *, overlapped: bool, plan: weft.torch.BucketPlan | None = None) -> None:
        self.overlapped = overlapped
        self.plan = plan
        self.models: list[weft.torch.DataParallel] = []

    def __call__(
        self, net: nn.Module, make: Callable[..., torch.optim.Optimizer] | None = None, **options: Any
    ) -> tuple[weft.torch.DataParallel, torch.optim.Optimizer]:
        if self.plan is not None:
            options = {**options, "plan": self.plan}
        model = weft.torch.DataParallel(net, **{"fusion": 200, **options})
        self.plan = model.plan
        self.models.append(model)
        optimizer = (make or sgd)(model.parameters())
        return model, self.overlap(optimizer, model)

    def deferred(self) -> bool:
        """Whether a bucket of the last model was updated after its step."""
        return any(span.kind == "update" for span in self.models[-1]._observer.spans)

    def overlap(self, optimizer: torch.optim.Optimizer, model: weft.torch.DataParallel) -> torch.optim.Optimizer:
        return weft.torch.Overlapped(optimizer, model) if self.overlapped else optimizer


def feature(function: Feature) -> Feature:
    FEATURES[function.__name__] = function
    return function


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=0.01)


def mlp(rank: int) -> nn.Sequential:
    torch.manual_seed(rank)
    return nn.Sequential(nn.Linear(INPUTS, 9), nn.Tanh(), nn.Linear(9, 7), nn.ReLU(), nn.Linear(7, OUTPUTS))


def batches(
    rank: int, steps: int = STEPS, shape: tuple[int, ...] = (SAMPLES, INPUTS)
) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(50 + rank)
    for _ in range(steps):
        yield torch.randn(shape, generator=generator), torch.randn(shape[0], OUTPUTS, generator=generator)


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    rank: int,
    steps: int = STEPS,
    shape: tuple[int, ...] = (SAMPLES, INPUTS),
) -> None:
    for inputs, targets in batches(rank, steps, shape):
        optimizer.zero_grad()
        mse_loss(model(inputs), targets).backward()
        optimizer.step()


def result(model: nn.Module, optimizer: torch.optim.Optimizer) -> Result:
    """Parameters, buffers, and the optimizer's state."""
    found = dict(model.state_dict())
    for index, state in optimizer.state_dict()["state"].items():
        found |= {f"{index}.{key}": value for key, value in state.items() if isinstance(value, Tensor)}
    return {key: value.clone() for key, value in found.items()}


@feature
def plain(setup: Setup, rank: int) -> Result:
    model, optimizer = setup(mlp(rank))
    train(model, optimizer, rank)
    return result(model, optimizer)


@feature
def gradients_are_views(setup: Setup, rank: int) -> Result:
    model, optimizer = setup(mlp(rank), gradients="view")
    train(model, optimizer, rank)
    return result(model, optimizer)


@feature
def accumulation(setup: Setup, rank: int) -> Result:
    model, optimizer = setup(mlp(rank))
    every = list(batches(rank))
    for micro_batches in (every[start : start + 3] for start in range(0, STEPS, 3)):
        optimizer.zero_grad()
        with model.no_sync():
            for inputs, targets in micro_batches[:-1]:
                mse_loss(model(inputs), targets).backward()
        mse_loss(model(micro_batches[-1][0]), micro_batches[-1][1]).backward()
        optimizer.step()
    return result(model, optimizer)


class Branches(nn.Module):
    """Uses one of its branches, or none, as the input says; one parameter is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(INPUTS, 8)
        self.branches = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])
        self.never = nn.Parameter(torch.ones(3))
        self.last = nn.Linear(8, OUTPUTS)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs)
        which = int(inputs.sum().item()) % 4
        return self.last(self.branches[which](hidden) if which < 3 else hidden)


def branches(rank: int) -> nn.Module:
    torch.manual_seed(rank)
    return Branches()


@feature
def unused_parameters(setup: Setup, rank: int) -> Result:
    model, optimizer = setup(branches(rank))
    train(model, optimizer, rank)
    assert model.module.never.grad is None
    return result(model, optimizer)


@feature
def unused_parameters_of_views(setup: Setup, rank: int) -> Result:
    model, optimizer = setup(branches(rank), gradients="view")
    train(model, optimizer, rank)
    assert model.module.never.grad is None
    return result(model, optimizer)


@feature
def unused_parameters_with_kept_gradients(setup: Setup, rank: int) -> Result:
    """Gradients of before that nobody drops, some of which no rank makes again."""
    model, optimizer = setup(branches(rank))
    for inputs, targets in batches(rank):
        mse_loss(model(inputs), targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return result(model, optimizer)


@feature
def accumulation_of_branches(setup: Setup, rank: int) -> Result:
    """A parameter that was used in any micro-batch is averaged."""
    model, optimizer = setup(branches(rank))
    for step, (inputs, targets) in enumerate(batches(rank)):
        if step % 2 == 0:
            optimizer.zero_grad()
            with model.no_sync():
                mse_loss(model(inputs), targets).backward()
        else:
            mse_loss(model(inputs), targets).backward()
            optimizer.step()
    return result(model, optimizer)


@feature
def clipping_by_norm(setup: Setup, rank: int) -> Result:
    model, optimizer = setup(mlp(rank))
    saved = list(model.parameters())
    norms = []
    for step, (inputs, targets) in enumerate(batches(rank)):
        optimizer.zero_grad()
        mse_loss(model(inputs), targets).backward()
        parameters = saved if step % 2 else model.parameters()
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, 0.5, foreach=bool(step % 3)))
        optimizer.step()
    return {**result(model, optimizer), "norms": torch.stack(norms)}


@feature
def clipping_by_value(setup: Setup, rank: int) -> Result:
    model, optimizer = setup(mlp(rank))
    for inputs, targets in batches(rank):
        optimizer.zero_grad()
        mse_loss(model(inputs), targets).backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.05)
        optimizer.step()
    return result(model, optimizer)


@feature
def gradients_replaced(setup: Setup, rank: int) -> Result:
    """Between backward and step, and after it, when they are the next step's concern."""
    model, optimizer = setup(mlp(rank))
    first, second, *_ = model.parameters()
    for inputs, targets in batches(rank):
        optimizer.zero_grad()
        mse_loss(model(inputs), targets).backward()
        first.grad = first.grad * 0.5
        second.grad.mul_(0.25)
        optimizer.step()
        first.grad = torch.full_like(first, 7.0)
    return result(model, optimizer)


def scaled(setup: Setup, rank: int, make: Callable[..., torch.optim.Optimizer], *, clip: bool) -> Result:
    model, optimizer = setup(mlp(rank), make)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14, growth_interval=7)
    scales = []
    for step, (inputs, targets) in enumerate(batches(rank)):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = mse_loss(model(inputs).float(), targets)
        if step % 11 == 5 and rank == 0:  # one rank overflows: no rank may step
            loss = loss * 1e30
        scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    assert len(set(scales)) > 1
    return {**result(model, optimizer), "scales": torch.tensor(scales)}


@feature
def scaler(setup: Setup, rank: int) -> Result:
    return scaled(setup, rank, sgd, clip=False)


@feature
def scaler_with_clipping(setup: Setup, rank: int) -> Result:
    return scaled(setup, rank, sgd, clip=True)


@feature
def scaler_of_fused_optimizer(setup: Setup, rank: int) -> Result:
    return scaled(setup, rank, lambda parameters: torch.optim.Adam(parameters, fused=True), clip=False)


@feature
def autocast_to_bfloat16(setup: Setup, rank: int) -> Result:
    model, optimizer = setup(mlp(rank))
    for inputs, targets in batches(rank):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mse_loss(model(inputs), targets).backward()
            optimizer.step()
    return result(model, optimizer)


@feature
def several_element_types(setup: Setup, rank: int) -> Result:
    net = mlp(rank)
    net[0].to(torch.float64)
    net[4].to(torch.bfloat16)

    def cast(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(one.to(module.weight.dtype) for one in inputs)

    for layer in (net[0], net[2], net[4]):
        layer.register_forward_pre_hook(cast)
    model, optimizer = setup(net)
    for inputs, targets in batches(rank):
        optimizer.zero_grad()
        mse_loss(model(inputs).float(), targets).backward()
        optimizer.step()
    return result(model, optimizer)


def normalized(rank: int) -> nn.Module:
    torch.manual_seed(rank)
    return nn.Sequential(nn.Linear(INPUTS, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, OUTPUTS))


@feature
def buffers_broadcast(setup: Setup, rank: int) -> Result:
    model, optimizer = setup(normalized(rank))
    train(model, optimizer, rank)
    return result(model, optimizer)


@feature
def buffers_averaged(setup: Setup, rank: int) -> Result:
    model, optimizer = setup(normalized(rank), buffers="average")
    train(model, optimizer, rank)
    return result(model, optimizer)


@feature
def buffers_left(setup: Setup, rank: int) -> Result:
    model, optimizer = setup(normalized(rank), buffers="leave")
    train(model, optimizer, rank)
    return result(model, optimizer)


@feature
def batch_normalization_over_ranks(setup: Setup, rank: int) -> Result:
    model, optimizer = setup(weft.torch.convert_sync_batchnorm(normalized(rank)))
    train(model, optimizer, rank)
    return result(model, optimizer)


class Reused(nn.Module):
    """A module used twice, tied parameters, and uses that no call of a module tells of."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(INPUTS, 8)
        self.twice = nn.Linear(8, 8)
        self.tied = nn.Linear(8, 8)
        self.tied.weight = self.twice.weight
        self.functional = nn.Linear(8, 8)
        self.direct = nn.Linear(8, 8)
        self.scale = nn.Parameter(torch.ones(8))
        self.listed = nn.ParameterList([torch.ones(8), torch.zeros(8)])
        self.last = nn.Linear(8, OUTPUTS)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.twice(torch.tanh(self.twice(self.first(inputs))))
        hidden = self.tied(hidden) * self.scale
        hidden = linear(torch.tanh(hidden), self.functional.weight, self.functional.bias)
        hidden = self.direct.forward(hidden) * self.listed[0] + self.listed[1]
        return self.last(hidden)


@feature
def reuse_and_functional_use(setup: Setup, rank: int) -> Result:
    torch.manual_seed(rank)
    model, optimizer = setup(Reused())
    train(model, optimizer, rank)
    return result(model, optimizer)


@feature
def functional_call(setup: Setup, rank: int) -> Result:
    """Parameters are replaced for a call; those of the model are trained."""
    model, optimizer = setup(mlp(rank))
    for inputs, targets in batches(rank):
        optimizer.zero_grad()
        scaled_parameters = {name: parameter * 1.5 for name, parameter in model.named_parameters()}
        mse_loss(torch.func.functional_call(model, scaled_parameters, (inputs,)), targets).backward()
        optimizer.step()
    return result(model, optimizer)


class Recurrent(nn.Module):
    """An LSTM keeps its parameters in a list of its own, and this module those of another one."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(INPUTS, 5, batch_first=True)
        self.last = nn.Linear(5, OUTPUTS)
        self.kept = [self.last.weight]

    def forward(self, inputs: Tensor) -> Tensor:
        hidden, _ = self.lstm(inputs[:, None])
        return linear(hidden[:, 0], self.kept[0]) + self.last.bias


@feature
def references_to_parameters(setup: Setup, rank: int) -> Result:
    torch.manual_seed(rank)
    model, optimizer = setup(Recurrent())
    train(model, optimizer, rank)
    return result(model, optimizer)


@feature
def channels_last(setup: Setup, rank: int) -> Result:
    torch.manual_seed(rank)
    net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Conv2d(4, 3, 2), nn.Flatten(), nn.Linear(12, OUTPUTS))
    model, optimizer = setup(net.to(memory_format=torch.channels_last))
    train(model, optimizer, rank, shape=(SAMPLES, 2, 5, 5))
    return result(model, optimizer)


@feature
def frozen_parameters(setup: Setup, rank: int) -> Result:
    net = mlp(rank)
    net[2].requires_grad_(False)
    model, optimizer = setup(net)
    train(model, optimizer, rank)
    return result(model, optimizer)


@feature
def groups_and_schedulers(setup: Setup, rank: int) -> Result:
    def make(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        first, *others = parameters
        groups = [{"params": others[:3], "lr": 0.01}, {"params": [first, *others[3:]], "weight_decay": 0.1}]
        return torch.optim.AdamW(groups, lr=torch.tensor(0.02), foreach=False)

    model, optimizer = setup(mlp(rank), make)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 9)
    for step, (inputs, targets) in enumerate(batches(rank)):
        optimizer.zero_grad()
        mse_loss(model(inputs), targets).backward()
        optimizer.step()
        scheduler.step()
        optimizer.param_groups[1]["weight_decay"] = 0.1 / (step + 1)
    return result(model, optimizer)


@feature
def group_added_later(setup: Setup, rank: int) -> Result:
    model, optimizer = setup(mlp(rank), lambda parameters: sgd(list(parameters)[:2]))
    train(model, optimizer, rank, STEPS // 2)
    optimizer.add_param_group({"params": list(model.parameters())[2:], "lr": 0.01})
    train(model, optimizer, rank, STEPS // 2)
    return result(model, optimizer)


@feature
def two_optimizers(setup: Setup, rank: int) -> Result:
    """One for each half of the model, which share buckets; they step at different times."""
    model, first = setup(mlp(rank), lambda parameters: sgd(list(parameters)[::2]), fusion=1 << 20)
    second = setup.overlap(torch.optim.Adam(list(model.parameters())[1::2]), model)
    for step, (inputs, targets) in enumerate(batches(rank)):
        model.zero_grad()
        mse_loss(model(inputs), targets).backward()
        first.step()
        if step % 3:
            second.step()
    return {**result(model, first), "second": result(model, second)["0.exp_avg"]}


@feature
def parameters_of_no_model(setup: Setup, rank: int) -> Result:
    """The optimizer also has a parameter that DataParallel does not know."""
    other = nn.Parameter(torch.ones(OUTPUTS))
    model, optimizer = setup(mlp(rank), lambda parameters: sgd([*parameters, other]))
    for inputs, targets in batches(rank):
        optimizer.zero_grad()
        mse_loss(model(inputs) * other, targets).backward()
        optimizer.step()
    return {**result(model, optimizer), "other": other.detach()}


@feature
def checkpointing(setup: Setup, rank: int) -> Result:
    return checkpointed(setup, rank, use_reentrant=False)


@feature
def reentrant_checkpointing(setup: Setup, rank: int) -> Result:
    return checkpointed(setup, rank, use_reentrant=True)


class Checkpointed(nn.Module):
    """Two segments, with a layer that both use."""

    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.use_reentrant = use_reentrant
        self.first = nn.Linear(INPUTS, 8)
        self.shared = nn.Linear(8, 8)
        self.own = nn.Linear(8, 8)
        self.last = nn.Linear(8, OUTPUTS)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs)
        hidden = checkpoint(self.shared, hidden, use_reentrant=self.use_reentrant)
        hidden = checkpoint(lambda x: self.shared(self.own(x).tanh()), hidden, use_reentrant=self.use_reentrant)
        return self.last(hidden)


def checkpointed(setup: Setup, rank: int, *, use_reentrant: bool) -> Result:
    torch.manual_seed(rank)
    model, optimizer = setup(Checkpointed(use_reentrant))
    train(model, optimizer, rank)
    return result(model, optimizer)


@feature
def moving_average(setup: Setup, rank: int) -> Result:
    model, optimizer = setup(mlp(rank))
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    for inputs, targets in batches(rank):
        optimizer.zero_grad()
        mse_loss(model(inputs), targets).backward()
        optimizer.step()
        average.update_parameters(model)
    return {**result(model, optimizer), **{f"average.{k}": v for k, v in average.state_dict().items()}}


@feature
def resumed(setup: Setup, rank: int) -> Result:
    """Saved in the middle of training, and loaded into another model."""
    model, optimizer = setup(mlp(rank), torch.optim.Adam)
    steps = list(batches(rank))
    file = io.BytesIO()
    for number, (inputs, targets) in enumerate(steps):
        if number == STEPS // 2:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
            file.seek(0)
            state = torch.load(file, weights_only=True)
            model, optimizer = setup(mlp(rank), torch.optim.Adam)
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
        optimizer.zero_grad()
        mse_loss(model(inputs), targets).backward()
        optimizer.step()
    return result(model, optimizer)


@feature
def evaluation_in_between(setup: Setup, rank: int) -> Result:
    model, optimizer = setup(normalized(rank))
    seen = []
    for step, (inputs, targets) in enumerate(batches(rank)):
        optimizer.zero_grad()
        mse_loss(model(inputs), targets).backward()
        optimizer.step()
        if step % 10 == 3:
            model.eval()
            with torch.inference_mode():
                seen.append(model(inputs).sum().item())
            model.train()
        if step % 10 == 7:  # of a part, without eval() and without a call of the whole
            with torch.inference_mode():
                seen.append(model.module[0](inputs).sum().item())
    return {**result(model, optimizer), "seen": torch.tensor(seen)}


@feature
def reading_weights(setup: Setup, rank: int) -> Result:
    """Directly after the step, on some ranks only."""
    model, optimizer = setup(mlp(rank))
    seen = []
    for step, (inputs, targets) in enumerate(batches(rank)):
        optimizer.zero_grad()
        mse_loss(model(inputs), targets).backward()
        optimizer.step()
        if step % 2 == rank % 2:
            layer = model.module[2 * (step % 3)]
            seen.append(layer.weight.sum().item())
            seen.append(sum(parameter.norm().item() for parameter in model.module.parameters()))
    return {**result(model, optimizer), "seen": torch.tensor(seen)}


@feature
def changing_weights(setup: Setup, rank: int) -> Result:
    """After the step, as for weight norms or spectral clipping."""
    model, optimizer = setup(mlp(rank))
    for inputs, targets in batches(rank):
        optimizer.zero_grad()
        mse_loss(model(inputs), targets).backward()
        optimizer.step()
        with torch.no_grad():
            model.module[2].weight.clamp_(-0.5, 0.5)
    return result(model, optimizer)


@feature
def ways_to_zero(setup: Setup, rank: int) -> Result:
    model, optimizer = setup(mlp(rank))
    zero = [
        lambda: optimizer.zero_grad(),
        lambda: optimizer.zero_grad(set_to_none=False),
        lambda: model.zero_grad(),
        lambda: model.zero_grad(set_to_none=False),
        lambda: model.module.zero_grad(),
        lambda: None,
    ]
    for step, (inputs, targets) in enumerate(batches(rank)):
        mse_loss(model(inputs), targets).backward()
        optimizer.step()
        zero[step % len(zero)]()
    return result(model, optimizer)


@feature
def several_backward_passes(setup: Setup, rank: int) -> Result:
    """Of one forward, and of two forwards."""
    model, optimizer = setup(mlp(rank))
    for inputs, targets in batches(rank):
        optimizer.zero_grad()
        outputs = model(inputs)
        outputs.mean().backward(retain_graph=True)
        mse_loss(outputs, targets).backward()
        (model(inputs) - model(-inputs)).square().mean().backward()
        optimizer.step()
    return result(model, optimizer)


@feature
def graph_of_gradients(setup: Setup, rank: int) -> Result:
    """A penalty on gradients of the inputs, which autograd.grad computes."""
    model, optimizer = setup(mlp(rank))
    for inputs, targets in batches(rank):
        optimizer.zero_grad()
        outputs = model(inputs.requires_grad_())
        (slope,) = torch.autograd.grad(outputs.sum(), inputs, create_graph=True)
        (mse_loss(outputs, targets) + slope.square().mean()).backward()
        optimizer.step()
    return result(model, optimizer)


@feature
def closure(setup: Setup, rank: int) -> Result:
    model, optimizer = setup(mlp(rank))
    for inputs, targets in batches(rank):

        def evaluate(inputs: Tensor = inputs, targets: Tensor = targets) -> Tensor:
            optimizer.zero_grad()
            loss = mse_loss(model(inputs), targets)
            loss.backward()
            return loss

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizer.step(evaluate)
    return result(model, optimizer)


@feature
def step_hooks(setup: Setup, rank: int) -> Result:
    """Hooks after steps see updated parameters."""
    model, optimizer = setup(mlp(rank))
    seen = []
    optimizer.register_step_post_hook(lambda *_: seen.append(model.module[0].weight.sum().item()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train(model, optimizer, rank)
    return {**result(model, optimizer), "seen": torch.tensor(seen)}


@feature
def copies(setup: Setup, rank: int) -> Result:
    """Copies and pickles are plain modules with the last step's parameters."""
    model, optimizer = setup(mlp(rank))
    found = {}
    for step, (inputs, targets) in enumerate(batches(rank, 6)):
        optimizer.zero_grad()
        mse_loss(model(inputs), targets).backward()
        optimizer.step()
        file = io.BytesIO()
        torch.save([model, model.module, model.module[0]][step % 3], file)
        file.seek(0)
        read = torch.load(file, weights_only=False)
        for name, one in (("read", read), ("copy", copy.deepcopy([model, model.module, model.module[2]][step % 3]))):
            assert not isinstance(one, weft.torch.DataParallel)
            for module in one.modules():
                assert type(module._parameters) is dict
                assert not module._forward_pre_hooks
                assert all(type(p) is nn.Parameter for p in module._parameters.values() if p is not None)
            found |= {f"{step}.{name}.{key}": value for key, value in one.state_dict().items()}
    return {**result(model, optimizer), **found}


@feature
def other_plan_in_between(setup: Setup, rank: int) -> Result:
    """New buckets while updates wait and gradients are kept."""
    model, optimizer = setup(mlp(rank))
    train(model, optimizer, rank, STEPS // 2)
    plan = weft.torch.BucketPlan(model.plan.parameters, tuple(reversed(model.plan.buckets)))
    model._reducer.use_plan(plan)
    for step, (inputs, targets) in enumerate(batches(rank, STEPS // 2)):
        mse_loss(model(inputs), targets).backward()
        optimizer.step()
        if step % 5 == 0:
            optimizer.zero_grad()
    return result(model, optimizer)
