"""Fixtures of the multi-process tests, and their order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from team import Team, Teams


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the tests of a module that want the same team behind each other: a start of processes
    takes longer than most of the tests.
    """
    modules = list(dict.fromkeys(item.path for item in items))
    places = {module: place for place, module in enumerate(modules)}
    items.sort(key=lambda item: (places[item.path], *wanted_team(item)))


def wanted_team(item: pytest.Item) -> tuple[str, int]:
    """The transport and the number of ranks of a test, if it has them as parameters."""
    chosen = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    here = item.path.parent == Path(__file__).parent
    return (chosen.get("transport", ""), chosen.get("ranks", 0)) if here else ("", 0)


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
