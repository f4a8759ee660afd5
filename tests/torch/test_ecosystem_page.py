"""Tests of docs/reference/torch.md: currency, and agreement of its table with the tests."""

from __future__ import annotations

import ast
import json
from pathlib import Path

from tools.pages import torch, torch_suites
from tools.pages.torch_features import FEATURES

HERE = Path(__file__).parent
PREFIX = "test_"


def functions(file: Path) -> set[str]:
    """The tests of a file, as the table names them."""
    name = file.stem.removeprefix(PREFIX)
    found = (node for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef))
    return {f"{name}:{node.name.removeprefix(PREFIX)}" for node in found if node.name.startswith(PREFIX)}


def test_every_row_is_tested() -> None:
    there = set().union(*(functions(file) for file in HERE.glob("test_*.py")))
    for feature in FEATURES:
        assert feature.tests, f"{feature.name} has no test"
        assert there.issuperset(feature.tests), f"{feature.name}: no such test: {set(feature.tests) - there}"


def test_every_test_is_in_the_table() -> None:
    named = {test for feature in FEATURES for test in feature.tests}
    for file in HERE.glob("test_ecosystem_*.py"):
        if file != Path(__file__):
            assert functions(file) <= named, f"not in torch_features.py: {functions(file) - named}"


def test_rows_that_torch_refuses_are_tested_for_it() -> None:
    for feature in FEATURES:
        refused = all(test.endswith("_is_refused_by_torch") for test in feature.tests)
        assert (feature.status == "refused by torch") == refused, feature.name


def test_failures_only_with_weft_have_a_reason() -> None:
    for suite in json.loads(Path(torch_suites.__file__).with_suffix(".json").read_text()):
        for difference in suite["only_weft_fails"]:
            assert difference["reason"], f"{suite['name']}: {difference['test']}: add it to tests/public/reasons.toml"


def test_page_is_current() -> None:
    page = HERE.parents[1] / "docs" / "reference" / "torch.md"
    assert page.read_text() == torch.page(), "run `make docs`"
