"""Tests of overlapped training: the bits of training without overlap."""

from __future__ import annotations

import pytest
from models import MODELS
from training import compare

STEPS = 20


@pytest.mark.parametrize("size", (1, 2, 3, 4))
@pytest.mark.parametrize("name", MODELS)
def test_same_bits(workers, name: str, size: int) -> None:
    workers.run(size, same_bits_job, name)


def same_bits_job(rank: int, _size: int, name: str) -> None:
    compare(name, rank, STEPS, fusion=2000)
