"""Test of the language model in examples/: killed and started again, it has the same bits."""

from __future__ import annotations

from pathlib import Path

import torch
from test_ecosystem_elastic import torchrun

SCRIPT = Path(__file__).parents[2] / "examples" / "language_model.py"
TRAINING = (str(SCRIPT), "--steps=12", "--batch=4", "--save-every=4", "--report-every=6", "--mode=power-sgd")


def test_language_model_goes_on_after_a_failure(tmp_path: Path) -> None:
    killed, whole = tmp_path / "killed.pt", tmp_path / "whole.pt"
    text = torchrun(["--max-restarts=1", *TRAINING, f"--checkpoint={killed}", "--kill-at=10"])
    assert f"goes on from step 8 of {killed}" in text, text
    assert "step 12: loss" in text and "It writes:" in text, text
    torchrun([*TRAINING, f"--checkpoint={whole}"])
    expected, found = torch.load(whole)["model"], torch.load(killed)["model"]
    assert all(torch.equal(value, found[name]) for name, value in expected.items())
