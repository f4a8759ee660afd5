"""Two ranks under each condition: the right sum or a `weft.Error` on every rank, in time."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conditions import CONDITIONS, Condition, missing
from system_packages import leave_out

ALL = os.environ.get("ENVIRONMENTS") == "all"
_MARGIN_SECONDS = 10.0
TRIED = [(condition, transport) for condition in CONDITIONS for transport in condition.transports]


class Runner:
    """The process that ranks are forked from."""

    def __init__(self) -> None:
        command = [sys.executable, str(Path(__file__).with_name("runner.py"))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, condition: Condition, transport: str) -> list[dict]:
        """Returns the outcomes of both ranks."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(json.dumps([condition.name, transport, condition.seconds]) + "\n")
        stdin.flush()
        ready, _, _ = select.select([stdout], [], [], condition.seconds + _MARGIN_SECONDS)
        assert ready, "the runner does not answer"
        return json.loads(stdout.readline())

    def stop(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    runner = Runner()
    yield runner
    runner.stop()


@pytest.mark.parametrize("condition,transport", TRIED, ids=lambda one: getattr(one, "name", one))
def test_ranks_are_right_or_fail_in_time(runner: Runner, condition: Condition, transport: str) -> None:
    if not ALL and (not condition.quick or condition.asked.others_wait):
        pytest.skip("takes longer than a second: make test-environments")
    if lacking := missing(condition):
        pytest.skip(lacking)
    if condition.package:
        leave_out(condition.package)
    ranks = runner.run(condition, transport)
    report = "\n".join(f"rank {number}: {rank}" for number, rank in enumerate(ranks))
    kinds = {rank["kind"] for rank in ranks}
    assert not kinds & {"wrong", "foreign", "hung", "died", "condition"}, report
    if condition.asked.right:
        assert kinds == {"right"}, report
    else:
        assert kinds != {"right"}, report
    said = [" ".join([rank["text"], *rank["warnings"]]) for rank in ranks]
    assert any(all(word in text for word in condition.asked.words) for text in said), report
