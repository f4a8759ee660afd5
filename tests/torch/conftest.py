"""Fixtures of the torch backend's tests: ranks and forks that import torch once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from elastic_forks import Nursery, Training, training_in
from worker_pool import WorkerPool


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """References are computed as the workers compute: the bits of products depend on threads."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def workers() -> Iterator[WorkerPool]:
    """Runs a job on several ranks: see `WorkerPool.run`."""
    pool = WorkerPool()
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """Its forks start without an import of torch each."""
    made = Nursery()
    yield made
    made.end()


@pytest.fixture
def training(tmp_path: Path, nursery: Nursery) -> Iterator[Training]:
    with training_in(tmp_path, nursery) as made:
        yield made
