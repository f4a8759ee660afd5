"""Features of training loops: optimizers, evaluation, copies, checkpoints, new plans."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Iterable

import torch
from overlap_models import normalized
from overlap_setup import (
    OUTPUTS,
    STEPS,
    Result,
    Setup,
    batches,
    feature,
    mlp,
    result,
    sgd,
    train,
    whole_state,
)
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import weft.torch


@feature
def scheduler_made_before_wrapping(setup: Setup, rank: int) -> Result:
    """It replaces the optimizer's `step` by a function that is bound to this optimizer."""
    made: list[torch.optim.lr_scheduler.LRScheduler] = []

    def with_scheduler(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        optimizer = torch.optim.Adam(parameters, lr=0.01)
        made.append(torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.8))
        return optimizer

    model, optimizer = setup(mlp(rank), with_scheduler)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for inputs, targets in batches(rank):
            optimizer.zero_grad()
            mse_loss(model(inputs), targets).backward()
            optimizer.step()
            made[0].step()
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
            torch.save({"model": model.state_dict(), "optimizer": whole_state(optimizer)}, file)
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
