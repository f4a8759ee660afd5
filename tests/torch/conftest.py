"""Ranks for the tests of the torch backend: processes that stay, so that torch is imported once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from worker_pool import WorkerPool


@pytest.fixture(scope="session")
def workers() -> Iterator[WorkerPool]:
    """Runs a job on several ranks: see `WorkerPool.run`."""
    pool = WorkerPool()
    yield pool
    pool.close()
