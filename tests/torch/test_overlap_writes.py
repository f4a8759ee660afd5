"""Tests of programs' accesses between a step and the next forward: as without overlap, or an error.

Random programs of such actions are run overlapped and not. Each action knows whether it can be put
in order with the deferred updates; an action that cannot must raise, and none may change a bit.
"""

from __future__ import annotations

import copy
import gc
import io
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from overlap_setup import Result, Setup, batches, mlp, result, sgd, train, whole_state
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from training import check_same, check_same_on_all_ranks

import weft
import weft.torch

PROGRAMS, PROGRAM_STEPS = 24, 5
OPTIMIZERS: tuple[Callable[..., torch.optim.Optimizer], ...] = (
    sgd,
    lambda parameters: torch.optim.Adam(parameters, lr=0.01, foreach=True),
    lambda parameters: torch.optim.AdamW(parameters, lr=0.01, amsgrad=True, foreach=False),
    lambda parameters: torch.optim.SGD([{"params": [one], "lr": 0.01} for one in parameters], lr=0.1, momentum=0.5),
)


@pytest.mark.parametrize("shard", ("none", 1))
def test_random_programs(workers, shard: int | str) -> None:
    """Those of actions that have an order, and of all actions."""
    found = workers.run(2, programs_job, shard)
    assert found[0] == found[1]
    assert min(found[0]) >= PROGRAMS // 4, "programs that were refused, and that were not"


@pytest.mark.parametrize("ordered", (True, False))
def test_every_action_alone(workers, ordered: bool) -> None:
    workers.run(2, alone_job, ordered)


def test_hyperparameters_wait_for_nothing(workers) -> None:
    workers.run(2, hyperparameters_job)


def test_continues_from_checkpoint_after_late_change(workers) -> None:
    workers.run(2, recovered_job)


def test_parameters_that_share_memory(workers) -> None:
    """Updates of one raise the version of another."""
    workers.run(2, shared_job)


class Program:
    """A training, and its references from before it was overlapped or since."""

    def __init__(self, setup: Setup, rank: int, make: Callable[..., torch.optim.Optimizer]) -> None:
        self.inner: torch.optim.Optimizer | None = None
        self.plain_groups: list[dict[str, Any]] = []

        def kept(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
            self.inner = make(parameters)
            self.plain_groups = list(self.inner.param_groups)
            return self.inner

        self.model, self.optimizer = setup(mlp(rank), kept)
        self.saved = list(self.model.module.parameters())
        self.aliases = [one.detach() for one in self.saved]
        self.entries = self.model.module.state_dict()
        self.groups = list(self.optimizer.param_groups)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        self.average = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
        self.averages = [one.detach().clone() for one in self.saved]
        self.gradients: list[Tensor | None] = []
        self.state: list[dict[str, Any]] = []
        self.checkpoint: dict[str, Any] = {}
        self.seen: list[Tensor] = []

    def step(self, inputs: Tensor, targets: Tensor) -> None:
        mse_loss(self.model(inputs), targets).backward()
        self.gradients = [one.grad for one in self.saved]
        self.state = list(self.optimizer.state.values())
        self.checkpoint = copy.deepcopy(whole_state(self.optimizer))
        self.optimizer.step()

    def result(self) -> Result:
        more = {f"average.{name}": value for name, value in self.average.state_dict().items()}
        more |= {f"averages.{place}": value for place, value in enumerate(self.averages)}
        more |= {f"seen.{place}": value for place, value in enumerate(self.seen)}
        return {**result(self.model, self.optimizer), **more}

    def parameters(self) -> list[nn.Parameter]:
        """By way of the optimizer."""
        return [one for group in self.optimizer.param_groups for one in group["params"]]

    def load_model(self) -> None:
        self.model.load_state_dict({name: value * 0.9 for name, value in self.model.state_dict().items()})

    def load_optimizer(self) -> None:
        self.optimizer.load_state_dict(copy.deepcopy(whole_state(self.optimizer)))

    def change_state(self) -> None:
        for state in self.optimizer.state.values():
            for value in state.values():
                if isinstance(value, Tensor) and value.dim():
                    value.mul_(0.5)

    def change_hyperparameters(self) -> None:
        for group in self.plain_groups[:1] + self.optimizer.param_groups[1:]:
            group["lr"] = group["lr"] * 0.5
            group["weight_decay"] = 0.01

    def replace_data(self) -> None:
        for one in self.saved:
            one.data = one.data * 0.9

    def swap_gradients(self) -> None:
        self.saved[0].grad = torch.ones_like(self.saved[0])
        self.saved[1].grad = None

    def copy(self) -> None:
        self.seen += [one.detach() for one in copy.deepcopy(self.saved)]

    def pickle(self) -> None:
        file = io.BytesIO()
        torch.save(self.saved, file)
        file.seek(0)
        self.seen += [one.detach() for one in torch.load(file, weights_only=False)]

    def change_states(self) -> None:
        for state in self.state:
            for value in state.values():
                if isinstance(value, Tensor) and value.dim():
                    value.zero_()

    def swap_states(self) -> None:
        for state in self.state:
            state.update({key: value * 0.5 for key, value in state.items() if isinstance(value, Tensor)})

    def swap_storage(self) -> None:
        put_elsewhere(self.saved[2])

    def swap_storage_twice(self) -> None:
        """The second may get the address of the first."""
        put_elsewhere(self.saved[2])
        gc.collect()
        put_elsewhere(self.saved[2])

    def swap_gradient_storage(self) -> None:
        for gradient in self.gradients:
            if gradient is not None:
                put_elsewhere(gradient)

    def swap_state_storage(self) -> None:
        for state in self.state:
            for value in state.values():
                if isinstance(value, Tensor) and value.dim():
                    put_elsewhere(value)


def put_elsewhere(tensor: Tensor) -> None:
    """Other values, without a new version."""
    torch.Tensor.data.__set__(tensor, tensor.detach().clone().mul_(0.9))


ORDERED: dict[str, Callable[[Program], Any]] = {
    "nothing": lambda _: None,
    "first of a group": lambda program: program.optimizer.param_groups[0]["params"][0].mul_(0.9),
    "foreach of a group": lambda program: torch._foreach_mul_(program.optimizer.param_groups[-1]["params"], 0.9),
    "groups of the inner optimizer": lambda program: program.inner.param_groups[0]["params"][-1].add_(0.1),
    "saved group": lambda program: program.groups[0].get("params")[0].clamp_(-0.1, 0.1),
    "items of a group": lambda program: dict(program.groups[0].items())["params"][0].mul_(0.9),
    "copy of a group": lambda program: {**program.groups[0]}["params"][0].mul_(0.9),
    "all of the model": lambda program: torch._foreach_mul_(list(program.model.parameters()), 0.9),
    "data": lambda program: program.saved[2].data.mul_(0.9),
    "other data": Program.replace_data,
    "average": lambda program: program.average.update_parameters(program.model),
    "average of groups": lambda program: torch._foreach_lerp_(program.averages, program.parameters(), 0.1),
    "average of data": lambda program: torch._foreach_lerp_(program.averages, [p.data for p in program.saved], 0.1),
    "scheduler": lambda program: program.scheduler.step(),
    "hyperparameters": Program.change_hyperparameters,
    "clipping": lambda program: nn.utils.clip_grad_norm_(program.saved, 0.1),
    "clipping by value": lambda program: nn.utils.clip_grad_value_(program.parameters(), 0.1),
    "zero_grad": lambda program: program.optimizer.zero_grad(),
    "zero_grad of the inner optimizer": lambda program: program.inner.zero_grad(),
    "gradients to zero": lambda program: program.optimizer.zero_grad(set_to_none=False),
    "other gradients": Program.swap_gradients,
    "load model": Program.load_model,
    "load optimizer": Program.load_optimizer,
    "load inner optimizer": lambda program: program.inner.load_state_dict(program.checkpoint),
    "load inner optimizer from itself": lambda program: program.inner.load_state_dict(program.inner.state_dict()),
    "state": Program.change_state,
    "copy": Program.copy,
    "pickle": Program.pickle,
}
UNORDERED: dict[str, Callable[[Program], Any]] = {
    "saved list": lambda program: program.saved[2].mul_(0.9),
    "foreach of a saved list": lambda program: torch._foreach_mul_(program.saved, 0.9),
    "saved alias": lambda program: program.aliases[1].mul_(0.9),
    "saved state dict": lambda program: next(iter(program.entries.values())).mul_(0.9),
    "group from before": lambda program: program.plain_groups[0]["params"][0].mul_(0.9),
    "foreach of a group from before": lambda program: torch._foreach_add_(program.plain_groups[0]["params"], 0.1),
    "saved gradients": lambda program: torch._foreach_mul_([g for g in program.gradients if g is not None], 0.5),
    "saved state": Program.change_states,
    "other values in a saved state": Program.swap_states,
    "other storage": Program.swap_storage,
    "other storage twice": Program.swap_storage_twice,
    "other storage of gradients": Program.swap_gradient_storage,
    "other storage of a saved state": Program.swap_state_storage,
}
ALL = {**ORDERED, **UNORDERED}
OF_WHOLE_STATE = (
    "load inner optimizer from itself",
    "saved state",
    "other values in a saved state",
    "other storage of a saved state",
)
"""Actions that need each parameter's whole state, which no rank has where it is divided."""


def run(setup: Setup, rank: int, make: Callable[..., torch.optim.Optimizer], actions: list[list[str]]) -> Result:
    program = Program(setup, rank, make)
    for (inputs, targets), names in zip(batches(rank, len(actions)), actions, strict=True):
        program.step(inputs, targets)
        with torch.no_grad():
            for name in names:
                ALL[name](program)
    return program.result()


def compared(
    rank: int, make: Callable[..., torch.optim.Optimizer], actions: list[list[str]], shard: int | str = "none"
) -> bool:
    """Runs a program overlapped and not; whether it was refused."""
    overlapped = Setup(overlapped=True, shard=shard)
    try:
        found = run(overlapped, rank, make, actions)
    except weft.UnsupportedError as error:
        assert any(name in UNORDERED for names in actions[1:] for name in names), error
        assert "flush()" in str(error), error
        assert any(name in str(error) for name, _ in mlp(0).named_parameters()), error
        return True
    check_same(found, run(Setup(overlapped=False, plan=overlapped.plan), rank, make, actions))
    check_same_on_all_ranks({"all": torch.cat([value.flatten().double() for value in found.values()])})
    return False


def programs_job(rank: int, _size: int, shard: int | str) -> tuple[int, int]:
    refused, excluded = 0, () if shard == "none" else OF_WHOLE_STATE
    for seed in range(PROGRAMS):
        chosen = random.Random(seed)
        names = [name for name in (ORDERED if seed % 2 else ALL) if name not in excluded]
        actions = [chosen.choices(names, k=chosen.randrange(4)) for _ in range(PROGRAM_STEPS)]
        refused += compared(rank, chosen.choice(OPTIMIZERS), actions, shard)
    return refused, PROGRAMS - refused


def alone_job(rank: int, _size: int, ordered: bool) -> None:
    for number, name in enumerate(ORDERED if ordered else UNORDERED):
        make = OPTIMIZERS[number % len(OPTIMIZERS)]
        refused = compared(rank, make, [[], [name], [], [name], []])
        assert refused != ordered, f"{name}: refused={refused}"


def hyperparameters_job(rank: int, _size: int) -> None:
    for make in (sgd, lambda parameters: torch.optim.Adam(parameters, fused=True)):
        model, optimizer = Setup(overlapped=True)(mlp(rank), make)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=20)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        for number, (inputs, targets) in enumerate(batches(rank, 8)):
            optimizer.zero_grad()
            scaler.scale(mse_loss(model(inputs), targets)).backward()
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            for group in optimizer.param_groups:
                group["weight_decay"] = 0.01 * group["lr"]
                assert "lr" in group
                group.setdefault("more", 1)
            deferred = sum(bool(bucket.updates) for bucket in model._reducer.buckets)
            assert deferred == (len(model._reducer.buckets) if number else 0)
        optimizer.param_groups[0]["params"]
        assert not any(bucket.updates for bucket in model._reducer.buckets)


def recovered_job(rank: int, _size: int) -> None:
    """In the same process group, which is whole."""
    setup = Setup(overlapped=True)
    model, optimizer = setup(mlp(rank))
    train(model, optimizer, rank, 3)
    checkpoint = copy.deepcopy([model.state_dict(), optimizer.state_dict()])
    saved = list(model.parameters())
    train(model, optimizer, rank, 1)
    with torch.no_grad():
        saved[0].zero_()
    with pytest.raises(weft.UnsupportedError, match=r"0\.weight was changed.*flush\(\)"):
        model(torch.ones(3, 6))
    with pytest.raises(weft.Error, match=r"incomplete since an update.*load a checkpoint"):
        optimizer.step()
    model.load_state_dict(checkpoint[0])
    optimizer.load_state_dict(checkpoint[1])
    train(model, optimizer, rank, 4)
    plain, other = Setup(overlapped=False, plan=setup.plan)(mlp(rank))
    train(plain, other, rank, 3)
    train(plain, other, rank, 4)
    check_same(result(model, optimizer), result(plain, other))


class Flat(nn.Module):
    """Layers whose weights are parts of one tensor."""

    def __init__(self) -> None:
        super().__init__()
        memory = torch.randn(6 * 9 + 9 * 9 + 9 * 2)
        self.first = nn.Parameter(memory[:54].view(6, 9))
        self.second = nn.Parameter(memory[54:135].view(9, 9))
        self.third = nn.Parameter(memory[135:].view(9, 2))

    def forward(self, inputs: Tensor) -> Tensor:
        return (inputs @ self.first).tanh() @ self.second @ self.third


def shared_job(rank: int, _size: int) -> None:
    def trained(setup: Setup) -> Result:
        torch.manual_seed(rank)
        model, optimizer = setup(Flat())
        train(model, optimizer, rank, 6)
        return result(model, optimizer)

    overlapped = Setup(overlapped=True)
    found = trained(overlapped)
    assert overlapped.deferred()
    check_same(found, trained(Setup(overlapped=False, plan=overlapped.plan)))
