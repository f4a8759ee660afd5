"""Tests of updates by weft's kernels: the bits and the state of torch's steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import MethodType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from weft.torch.parallel import native_updates
from weft.torch.parallel.native_updates import update_natively

Make = Callable[[Iterable[Tensor]], Optimizer]

MAKERS: dict[str, Make] = {
    "AdamW": torch.optim.AdamW,
    "AdamW without decay": lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0),
    "AdamW that forgets": lambda p: torch.optim.AdamW(p, lr=0.1, betas=(0.3, 0.5), eps=0.1),
    "AdamW that maximizes": lambda p: torch.optim.AdamW(p, lr=0.1, maximize=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=1),
    "Adam with decay": lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.1),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "SGD with decay": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1, dampening=0.3),
    "SGD of Nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "SGD that maximizes": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, maximize=True),
}
REFUSED: dict[str, Make] = {
    "another kind": lambda p: torch.optim.RMSprop(p, lr=0.1),
    "amsgrad": lambda p: torch.optim.AdamW(p, amsgrad=True),
    "foreach": lambda p: torch.optim.AdamW(p, foreach=True),
    "fused": lambda p: torch.optim.AdamW(p, fused=True),
    "a tensor as the rate": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.1)),
    "one pass": lambda p: torch.optim.SGD(p, lr=0.1),
    "fused SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "a subclass": lambda p: type("Own", (torch.optim.AdamW,), {})(p),
}
SHAPES = ((7, 1001), (64,), (3, 5), (130_001,), (), (0,), (1,), (65_536,))


def parameters() -> list[nn.Parameter]:
    made = [nn.Parameter(torch.randn(shape)) for shape in SHAPES]
    made.append(nn.Parameter(torch.randn((8, 16, 5, 5)).to(memory_format=torch.channels_last)))
    return made


def set_gradients(one: Iterable[nn.Parameter], other: Iterable[nn.Parameter], size: float) -> None:
    for first, second in zip(one, other, strict=True):
        first.grad = torch.randn_like(first) * size
        second.grad = first.grad.clone(memory_format=torch.preserve_format)


def bits_of(optimizer: Optimizer) -> list[Tensor]:
    states = [value for state in optimizer.state.values() for value in state.values()]
    return [*(one.detach() for group in optimizer.param_groups for one in group["params"]), *states]


def natively(optimizer: Optimizer, **handed_over: Any) -> list[dict[str, Any]]:
    with torch.no_grad():
        return update_natively(optimizer, optimizer.param_groups, handed_over)


@pytest.mark.parametrize("name", MAKERS)
def test_bits_are_those_of_torch(name: str) -> None:
    one = parameters()
    other = [nn.Parameter(each.detach().clone(memory_format=torch.preserve_format)) for each in one]
    by_weft, by_torch = MAKERS[name](one), MAKERS[name](other)
    for number in range(6):
        set_gradients(one, other, 10.0 ** (number - 3))
        by_torch.step()
        if number == 0:  # makes the state
            assert natively(by_weft) == by_weft.param_groups
            by_weft.step()
            continue
        versions = [each._version for each in one]
        assert natively(by_weft) == []
        assert all(each._version > version for each, version in zip(one, versions, strict=True))
        assert all(map(torch.equal, bits_of(by_weft), bits_of(by_torch)))


def test_groups_and_counts_of_steps_differ() -> None:
    one, other = parameters(), parameters()
    with torch.no_grad():
        for first, second in zip(one, other, strict=True):
            second.copy_(first)

    def made(params: list[nn.Parameter]) -> Optimizer:
        groups = [{"params": params[:3], "lr": 0.1}, {"params": params[3:], "weight_decay": 0.0}]
        return torch.optim.AdamW(groups)

    by_weft, by_torch = made(one), made(other)
    for number in range(4):
        set_gradients(one, other, 1)
        if number == 1:
            one[5].grad = other[5].grad = None
        by_torch.step()
        rest = natively(by_weft)
        if rest:
            whole, by_weft.param_groups = by_weft.param_groups, rest
            by_weft.step()
            by_weft.param_groups = whole
        assert bool(rest) == (number < 2)
    assert all(map(torch.equal, bits_of(by_weft), bits_of(by_torch)))


@pytest.mark.parametrize("name", REFUSED)
def test_others_stay_with_torch(name: str) -> None:
    params = parameters()
    optimizer = REFUSED[name](params)
    for _ in range(2):
        set_gradients(params, params, 1)
        before = [each.detach().clone() for each in params]
        assert natively(optimizer) == optimizer.param_groups
        assert all(map(torch.equal, params, before))
        optimizer.step()


def ready() -> tuple[list[nn.Parameter], Optimizer]:
    """An optimizer that the kernels could update."""
    params = parameters()
    optimizer = torch.optim.AdamW(params)
    set_gradients(params, params, 1)
    optimizer.step()
    set_gradients(params, params, 1)
    return params, optimizer


def test_hooks_own_steps_scalers_and_threads_are_left_to_torch() -> None:
    _, optimizer = ready()
    assert natively(optimizer, grad_scale=torch.ones(())) == optimizer.param_groups
    handle = register_optimizer_step_pre_hook(lambda *_: None)
    assert natively(optimizer) == optimizer.param_groups
    handle.remove()
    torch.set_num_threads(8)
    assert natively(optimizer) == optimizer.param_groups
    torch.set_num_threads(1)
    for own in (lambda: None, MethodType(lambda _: None, optimizer)):
        optimizer.step = own  # type: ignore[assignment,method-assign]
        assert natively(optimizer) == optimizer.param_groups


def test_optimizers_with_schedulers_are_updated() -> None:
    _, optimizer = ready()
    torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    assert natively(optimizer) == []


def test_other_memory_is_left_to_torch() -> None:
    params, optimizer = ready()
    params[0].grad = torch.randn(1001, 7).t()
    optimizer.state[params[1]]["exp_avg"] = torch.zeros(128)[::2]
    optimizer.state[params[2]]["exp_avg_sq"] = torch.zeros(3, 5, dtype=torch.float64)
    with torch.no_grad():
        params[3].grad = torch._neg_view(torch.randn(130_001))
    left = natively(optimizer)
    assert [id(one) for group in left for one in group["params"]] == [id(one) for one in params[:4]]


def test_a_shared_count_of_steps_is_left_to_torch() -> None:
    params, optimizer = ready()
    optimizer.state[params[0]]["step"] = optimizer.state[params[1]]["step"]
    assert natively(optimizer) == optimizer.param_groups


def test_other_bits_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a processor for which torch's formulas are compiled otherwise."""
    monkeypatch.setattr(native_updates, "_tried", {})
    right = native_updates._adam_step

    def wrong(*arguments: Any) -> tuple[Any, ...]:
        *others, size = right(*arguments)
        return (*others, size * (1 + 1e-6))

    monkeypatch.setattr(native_updates, "_adam_step", wrong)
    _, optimizer = ready()
    assert natively(optimizer) == optimizer.param_groups
    assert list(native_updates._tried.values()) == [None]
