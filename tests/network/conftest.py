"""Fixtures of the tests on emulated hosts."""

import os

import pytest


@pytest.fixture(autouse=True, scope="session")
def require_root() -> None:
    """Emulated hosts need root: without it these tests fail at once, with the reason."""
    assert os.geteuid() == 0, "tests/network needs root; `make test` leaves it out otherwise"
