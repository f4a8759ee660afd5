"""Tests of connections that are reset while the processes at both ends live."""

import pytest
import tasks_resets as tasks
from team import Team

CALLS = 40


@pytest.mark.parametrize(
    "environment",
    [{}, {"WEFT_TCP_CONNECTIONS": "3", "WEFT_ENCRYPT": "1"}],
    ids=["one connection", "three encrypted ones"],
)
def test_sums_are_exact_while_connections_are_reset(environment: dict[str, str]) -> None:
    team = Team(4, "tcp", {"WEFT_TCP_RESUME": "always", **environment})
    try:
        results = team.run(tasks.sum_while_connections_are_reset, CALLS, 11, deadline=120)
        assert [wrong for wrong, _ in results] == [[]] * 4
        assert sum(renewals for _, renewals in results) > 20
    finally:
        team.kill()
