"""Tests of the description of a training's state as plain data."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any

import pytest
import torch

from weft.errors import ConfigError, UnsupportedError
from weft.torch.recovery.plain import described, made

STATE: dict[Any, Any] = {
    0: {"step": torch.tensor(3.0), "exp_avg": torch.randn(3, 5), "empty": torch.empty(0, 4)},
    "groups": [{"lr": 0.1, "betas": (0.9, 0.999), "foreach": None, "amsgrad": False, "params": [0, 1]}],
    "bits": [torch.tensor([1, 2], dtype=torch.int64), torch.ones(2, 2, dtype=torch.bfloat16).t(), torch.tensor(True)],
    "special": [float("inf"), 1e-310, -0.0, 2**70, "text \u00e9\ud800", b"\0\xff", torch.float16, ()],
    (1, "a"): OrderedDict(x=1),
}


def test_state_survives() -> None:
    sent: list[torch.Tensor] = []
    received: list[torch.Tensor] = []
    copy = made(described(STATE, sent), received)
    for source, target in zip(sent, received, strict=True):
        target.copy_(source)
    assert equal(copy, STATE)
    assert type(copy["groups"][0]["betas"]) is tuple
    assert str(copy["special"][2]) == "-0.0"


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


@pytest.mark.parametrize("value", [object(), {1, 2}, lambda: 0, torch.eye(2).to_sparse(), [1j]])
def test_other_values_are_refused_by_name(value: Any) -> None:
    with pytest.raises(UnsupportedError, match="a "):
        described({"part": [value]}, [])


@pytest.mark.parametrize(
    "description",
    [
        ["tensor", "float32", [-1]],
        ["tensor", "load", [1]],
        ["tensor", "float32", 3],
        ["dict", [[["list", []], ["plain", 1]]]],
        ["plain", [1]],
        ["object", 1],
        ["bytes", "x"],
        ["list"],
        [],
        {},
        3,
    ],
)
def test_other_texts_are_refused(description: Any) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        made(json.dumps(description).encode(), [])
