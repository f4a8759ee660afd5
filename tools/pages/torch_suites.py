"""Results of public test suites over weft: a section of docs/reference/torch.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["section"]

_RECORDED = Path(__file__).with_name("torch_suites.json")
"""The record of `tests/public/run.py --record`."""

_HEAD = """
## Public suites

`make test-public-suites` runs test suites of other projects, with weft in place of Gloo and then with Gloo itself, in
one environment, each with a time limit. Only tests that make a process group and are not skipped count. These changes
are made to the suites (the first and the last for weft only):

- The name "gloo" makes weft's backend: `tests/public/substitute`.
- Ranks are forked, not spawned, which saves importing torch in each.
- distributed_test does not look for profiler events named "gloo:...", as with any backend that it does not know.

If `TORCH_TESTS` (the directory `test` of torch's repository) or `IGNITE` (ignite's repository) is set in the
environment, their tests run too. Most tests that fail with both are torch's tests of an older version, which use
features that torch no longer has. Of Accelerate's scripts, one needs a GPU and one a configuration for FSDP; in the
third, ranks call different operations, on which Gloo hangs and weft raises `weft.Desync`.

| suite | tests | pass with weft | pass with Gloo | fail with both |
|---|---|---|---|---|
"""

_ONLY_WEFT = """
Tests that fail only with weft:

| suite | test | reason |
|---|---|---|
"""

_ONLY_GLOO = """
Tests that fail only with Gloo: """


def section() -> str:
    """The section's text."""
    suites = json.loads(_RECORDED.read_text())
    counts = "".join(
        f"| {suite['what']} | {suite['tests']} | {suite['passed_weft']} | {suite['passed_gloo']} "
        f"| {suite['failed_both']} |\n"
        for suite in suites
    )
    differences = "".join(_differences(suite) for suite in suites)
    only_gloo = [f"`{_short(test)}`" for suite in suites for test in suite["only_gloo_fails"]]
    text = _HEAD + counts
    if differences:
        text += _ONLY_WEFT + differences
    if only_gloo:
        text += f"{_ONLY_GLOO}{', '.join(only_gloo)}.\n"
    return text


def _differences(suite: dict[str, Any]) -> str:
    rows = ((suite["name"], _short(item["test"]), item["reason"]) for item in suite["only_weft_fails"])
    return "".join(f"| {name} | `{test}` | {reason} |\n" for name, test, reason in rows)


def _short(test: str) -> str:
    """The test without its module and class."""
    return test.rpartition(".")[2]
