"""Tests of wire formats from Python: calls, groups, and refusals."""

import pytest
import tasks_wire as tasks


@pytest.mark.parametrize("ranks", [3])
@pytest.mark.parametrize("transport", ["tcp"])
def test_calls_and_groups(team) -> None:
    results = team.run(tasks.sums)
    assert all(result == results[0] for result in results), "ranks have different bits"


@pytest.mark.parametrize("ranks", [2])
@pytest.mark.parametrize("transport", ["tcp"])
def test_unsupported_calls_are_refused(team) -> None:
    team.run(tasks.refusals)
