"""Fixtures of the multi-process tests."""

from collections.abc import Iterator

import pytest
from team import Team, Teams


@pytest.fixture(scope="session")
def teams() -> Iterator[Teams]:
    """Teams of worker processes, kept between tests."""
    teams = Teams()
    yield teams
    teams.stop()


@pytest.fixture
def team(teams: Teams, ranks: int, transport: str) -> Team:
    """The team for a test's `ranks` and `transport`."""
    return teams.get(ranks, transport)
