"""Programs of random actions that fail, without those that they fail without."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

__all__ = ["run_or_shorten"]

SHORTENING_S = 60.0


def run_or_shorten(workers, job: Callable[..., None], program: Any) -> None:
    """Runs a job with a program, a dataclass with `size` and `actions`; fails with a short one."""

    def failure(program: Any) -> str:
        try:
            workers.run(program.size, job, program)
        except AssertionError as error:
            return str(error)
        return ""

    if not failure(program):
        return
    until = time.monotonic() + SHORTENING_S
    shortest = _shortened(program, lambda shorter: time.monotonic() < until and bool(failure(shorter)))
    pytest.fail(f"{shortest}: {failure(shortest)}")


def _shortened(program: Any, fails: Callable[[Any], bool]) -> Any:
    count = len(program.actions) // 2
    while count:
        start = 0
        while start < len(program.actions):
            shorter = replace(program, actions=[*program.actions[:start], *program.actions[start + count :]])
            if fails(shorter):
                program = shorter
            else:
                start += count
        count //= 2
    return program
