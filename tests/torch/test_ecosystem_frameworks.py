"""Tests of Lightning, Accelerate and Transformers' Trainer over weft: `make test-ecosystem`."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_ecosystem_elastic import torchrun

FRAMEWORKS = ("lightning", "accelerate", "transformers")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_training(framework: str) -> None:
    assert f"{framework}: trained on 2 ranks" in _run("framework_training.py", framework)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_overlapped_training(framework: str) -> None:
    """With accumulation, clipping, a scheduler and a checkpoint."""
    assert f"{framework}: overlapped on 2 ranks" in _run("framework_overlap.py", framework)


def _run(script: str, framework: str) -> str:
    pytest.importorskip(framework, reason=f"{framework} is not installed here: make test-ecosystem")
    return torchrun([str(Path(__file__).with_name(script)), framework])
