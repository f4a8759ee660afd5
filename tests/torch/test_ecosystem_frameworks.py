"""Tests of Lightning, Accelerate and Transformers' Trainer over weft: `make test-ecosystem`."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_ecosystem_elastic import torchrun

SCRIPT = Path(__file__).with_name("framework_training.py")


@pytest.mark.parametrize("framework", ("lightning", "accelerate", "transformers"))
def test_training(framework: str) -> None:
    pytest.importorskip(framework, reason=f"{framework} is not installed here: make test-ecosystem")
    text = torchrun([str(SCRIPT), framework])
    assert f"{framework}: trained on 2 ranks" in text, text
