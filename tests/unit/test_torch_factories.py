"""Tests that weft's tensors do not depend on torch's defaults: see [Note: The caller's modes]."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch.utils._device import _device_constructors

import weft.torch

FACTORIES = {function.__name__ for function in _device_constructors()}
NAMED = {"dtype", "device"}


def calls_without(source: str) -> Iterator[tuple[int, str, set[str]]]:
    """Line, function and missing keywords of calls that make tensors by torch's defaults."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        module, name = node.func.value, node.func.attr
        if isinstance(module, ast.Name) and module.id == "torch" and name in FACTORIES:
            missing = NAMED - {keyword.arg for keyword in node.keywords if keyword.arg}
            if missing:
                yield node.lineno, name, missing


def test_every_new_tensor_names_its_type_and_device() -> None:
    root = Path(weft.torch.__file__).parent
    found = [
        f"{path.relative_to(root)}:{line}: torch.{name} without {', '.join(sorted(missing))}"
        for path in sorted(root.rglob("*.py"))
        for line, name, missing in calls_without(path.read_text())
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ("torch.zeros(3)", {"dtype", "device"}),
        ("torch.tensor([1], dtype=torch.int64)", {"device"}),
        ("torch.empty(3, dtype=torch.uint8, device='cpu')", None),
        ("torch.zeros_like(other)", None),
    ],
)
def test_calls_are_found(source: str, missing: set[str] | None) -> None:
    assert [found[2] for found in calls_without(source)] == ([] if missing is None else [missing])
