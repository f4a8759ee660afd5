"""Tests of steps in blocks: the bits and the state of plain steps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from weft.torch.parallel import cache_blocking
from weft.torch.parallel.cache_blocking import in_blocks

Make = Callable[[Iterable[Tensor]], Optimizer]

MAKERS: dict[str, Make] = {
    "ASGD": lambda p: torch.optim.ASGD(p, lr=0.1, weight_decay=0.1),
    "Adadelta": torch.optim.Adadelta,
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, weight_decay=0.1),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.1, amsgrad=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.1),
    "AdamW fused": lambda p: torch.optim.AdamW(p, lr=0.1, fused=True),
    "AdamW foreach": lambda p: torch.optim.AdamW(p, lr=0.1, foreach=True),
    "Adamax": lambda p: torch.optim.Adamax(p, lr=0.1),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.1),
    "RAdam": lambda p: torch.optim.RAdam(p, lr=0.1),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.1, momentum=0.9, centered=True),
    "Rprop": torch.optim.Rprop,
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
}
SHAPES = ((7, 1001), (640,), (3, 5), (32, 3, 11, 11), ())


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_blocking, "BLOCK_ELEMENTS", 512)


def parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(7)
    made = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]
    made.append(nn.Parameter(torch.randn((8, 16, 5, 5), generator=generator).to(memory_format=torch.channels_last)))
    return made


def step_in_blocks(optimizer: Optimizer) -> list[int]:
    """Returns how many tensors each group had in the step."""
    whole = optimizer.param_groups
    with torch.no_grad(), in_blocks(optimizer, whole) as optimizer.param_groups:
        counts = [len(group["params"]) for group in optimizer.param_groups]
        optimizer.step()
    optimizer.param_groups = whole
    return counts


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return one.shape == other.shape and one.stride() == other.stride() and torch.equal(one, other)
    return type(one) is type(other) and one == other


def assert_same_state(one: Optimizer, other: Optimizer) -> None:
    assert len(one.state) == len(other.state)
    mine, theirs = ([found.state.get(p, {}) for p in found.param_groups[0]["params"]] for found in (one, other))
    for state, expected in zip(mine, theirs, strict=True):
        assert state.keys() == expected.keys()
        assert all(same(value, expected[name]) for name, value in state.items()), (state, expected)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_bits_and_state_are_those_of_plain_steps(make: Make) -> None:
    plain, cut = parameters(), parameters()
    reference, optimizer = make(plain), make(cut)
    generator = torch.Generator().manual_seed(3)
    for step in range(6):
        for one, other in zip(plain, cut, strict=True):
            one.grad = torch.randn(one.shape, generator=generator).to(memory_format=torch.preserve_format)
            other.grad = one.grad.clone()
        if step == 4:
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        (count,) = step_in_blocks(optimizer)
        assert (count > len(cut)) != one_pass(optimizer)
        reference.step()
        assert all(map(same, cut, plain))
        assert_same_state(optimizer, reference)


def one_pass(optimizer: Optimizer) -> bool:
    return any(optimizer.defaults.get(option) for option in ("fused", "foreach"))


def test_other_optimizers_are_left_alone() -> None:
    class Own(torch.optim.SGD):
        pass

    cut = parameters()
    for parameter in cut:
        parameter.grad = torch.ones_like(parameter)
    assert step_in_blocks(Own(cut, lr=0.1)) == [len(cut)]


def test_a_failed_step_leaves_state_by_parameter() -> None:
    (large, *_) = cut = parameters()
    optimizer = torch.optim.AdamW(cut, lr=0.1)
    for parameter in cut:
        parameter.grad = torch.ones_like(parameter)
    step_in_blocks(optimizer)
    states = dict(optimizer.state)
    with pytest.raises(KeyboardInterrupt), torch.no_grad(), in_blocks(optimizer, optimizer.param_groups):
        raise KeyboardInterrupt
    assert optimizer.state == states
    assert optimizer.state[large]["exp_avg"].shape == large.shape


def test_graphs_from_before_cannot_be_used() -> None:
    weight = nn.Parameter(torch.ones(1, 2048))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    loss = (weight * weight).sum()
    weight.grad = torch.ones_like(weight)
    step_in_blocks(optimizer)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
