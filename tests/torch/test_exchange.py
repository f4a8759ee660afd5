"""Tests of values that ranks exchange: plain data of one type, and nothing that is executed."""

from __future__ import annotations

import ast
import dataclasses
import json
import math
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import weft
import weft.torch
from weft.torch import exchange
from weft.torch.parallel.costs import CostModel, StepProfile
from weft.torch.parallel.plan import ParameterInfo

EXECUTING = {
    "pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "marshal",
    "shelve",
    "torch.load",
    "numpy.load",
    "eval",
    "exec",
}
OBJECTS = ("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list", "recv_object_list")
WRITES_ONLY = ("tracing/analyzer.py",)
"""Modules that write pickles of this job's own records for a program of PyTorch's, and read
none.
"""


@dataclasses.dataclass(frozen=True)
class Part:
    number: int
    share: float


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("text \N{SNOWMAN}", str),
        (7, int),
        (0.1, float),
        (math.inf, float),
        (None, str | None),
        ({"a": 1, "b": None, "c": "x"}, dict[str, str | int | None]),
        ([(0.5, 1.5)], list[tuple[float, float]]),
        ((1, 2, 3), tuple[int, ...]),
        ([Part(1, 2.0)], list[Part]),
        ([ParameterInfo("0.weight", 6, "float32", 4)], list[ParameterInfo]),
        (CostModel(1e-5, 1 / 3e9), CostModel),
        (StepProfile((0.1, math.inf), (0.0, 0.2), 0.5, 0.25, 1e-9, {3: 0.5}), StepProfile | None),
    ],
    ids=str,
)
def test_values_come_as_they_were(value: object, kind: Any) -> None:
    assert exchange.decoded(exchange.encoded(value), kind, 0) == value


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (pickle.dumps("text"), str),
        (b"\xff\xfe", str),
        (b"[" * 100_000, list[int]),
        (b"7", str),
        (b"true", int),
        (b"7.5", int),
        (b'"7"', float),
        (b"[1]", tuple[float, float]),
        (b'{"number": 1}', Part),
        (b'{"number": 1, "share": 2.0, "more": 3}', Part),
        (b'{"number": "1", "share": 2.0}', Part),
        (b'{"one": 2.0}', Mapping[int, float]),
        (b"[]", str | None),
    ],
    ids=str,
)
def test_anything_else_is_refused(data: bytes, kind: Any) -> None:
    with pytest.raises(weft.ConfigError, match="rank 3 sent a value"):
        exchange.decoded(data, kind, 3)


def test_a_value_of_another_rank_is_not_executed(workers) -> None:
    """Rank 1 sends a pickle that `all_gather_object` would execute, in the agreement on a model."""
    assert workers.run(2, hostile_job) == ["rank 1 sent a value that"] * 2


def test_lengths_are_checked_first(workers) -> None:
    assert workers.run(2, length_job) == [True, True]


def test_received_data_are_never_executed() -> None:
    """No file of weft's unpickles, or has torch do so for it."""
    package = Path(weft.__file__).parent
    found = {
        f"{path.relative_to(package)}: {name}"
        for path in package.rglob("*.py")
        if str(path.relative_to(package)) not in WRITES_ONLY
        for name in executing(path)
    }
    assert found == set()


def executing(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names} & EXECUTING
        elif isinstance(node, ast.ImportFrom):
            found |= {str(node.module)} & EXECUTING
            found |= {name.name for name in node.names} & set(OBJECTS)
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in EXECUTING or called.rpartition(".")[2] in OBJECTS:
                found.add(called)
    return found


class Executed:
    def __reduce__(self) -> Any:
        return exit, (3,)


def hostile_job(rank: int, _size: int) -> str:
    if rank == 1:  # a process that speaks the protocol by hand
        data = pickle.dumps(Executed())
        exchange.json = Dumping(data)
    try:
        with pytest.raises(weft.ConfigError) as caught:
            weft.torch.DataParallel(nn.Linear(3, 2))
    finally:
        exchange.json = json
    return str(caught.value)[:24]


class Dumping:
    """A `json` that sends other bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.loads = json.loads

    def dumps(self, *_: Any, **__: Any) -> Any:
        return Encoded(self._data)


class Encoded:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def encode(self) -> bytes:
        return self._data


def length_job(rank: int, size: int) -> bool:
    if rank == 0:
        with pytest.raises(weft.ConfigError, match="rank 1 sends a value of 4611686018427387904 bytes"):
            exchange.gather("value", str)
        return True
    parts = [torch.empty(1, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(parts, torch.tensor([1 << 62]))
    return True
