"""Fixtures of the tests on emulated hosts."""

import os

import pytest
from system_packages import leave_out


@pytest.fixture(autouse=True, scope="session")
def require_root() -> None:
    """Emulated hosts need root: without it these tests fail immediately, with the reason."""
    assert os.geteuid() == 0, "tests/network needs root; `make test` leaves it out otherwise"


@pytest.fixture(autouse=True)
def require_iproute2() -> None:
    """Emulated hosts are made by `ip` and `tc`."""
    leave_out("iproute2")
