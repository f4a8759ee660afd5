"""Tests of Lightning, Accelerate, Transformers' Trainer, DeepSpeed, torchft and JAX:
`make test-ecosystem`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from test_ecosystem_elastic import finished, torchrun

FRAMEWORKS = ("lightning", "accelerate", "transformers")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_training(framework: str) -> None:
    assert f"{framework}: trained on 2 ranks" in _run("framework_training.py", framework)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_overlapped_training(framework: str) -> None:
    """With accumulation, clipping, a scheduler and a checkpoint."""
    assert f"{framework}: overlapped on 2 ranks" in _run("framework_overlap.py", framework)


def test_deepspeed() -> None:
    assert "deepspeed: trained on 2 ranks" in _run("framework_training.py", "deepspeed")


def test_gradients_of_jax() -> None:
    assert "jax: trained on 2 ranks" in _run("framework_training.py", "jax")


def test_torchft_continues_without_a_killed_replica() -> None:
    pytest.importorskip("torchft", reason="torchft is not installed here: make test-ecosystem")
    text = finished([str(Path(__file__).with_name("torchft_training.py"))])
    assert "torchft: 2 of 3 replicas did 12 steps, the last on 2, same bits" in text, text


def _run(script: str, framework: str) -> str:
    pytest.importorskip(framework, reason=f"{framework} is not installed here: make test-ecosystem")
    return torchrun([str(Path(__file__).with_name(script)), framework])
