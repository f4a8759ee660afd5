"""Tests of the examples of training that continues after a failure."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import torch
from test_ecosystem_elastic import DEADLINE_SECONDS, finished, torchrun

from weft.processes.ports import free_ports

SURVIVING = Path(__file__).parents[2] / "examples" / "surviving_training.py"
SCRIPT = Path(__file__).parents[2] / "examples" / "language_model.py"
TRAINING = (str(SCRIPT), "--steps=12", "--batch=4", "--save-every=4", "--report-every=6", "--mode=power-sgd")


def test_language_model_continues_after_a_failure(tmp_path: Path) -> None:
    killed, whole = tmp_path / "killed.pt", tmp_path / "whole.pt"
    text = torchrun(["--max-restarts=1", *TRAINING, f"--checkpoint={killed}", "--kill-at=10"])
    assert f"continues from step 8 of {killed}" in text, text
    assert "step 12: loss" in text and "It writes:" in text, text
    torchrun([*TRAINING, f"--checkpoint={whole}"])
    expected, found = torch.load(whole)["model"], torch.load(killed)["model"]
    assert all(torch.equal(value, found[name]) for name, value in expected.items())


def test_surviving_training_continues_by_itself() -> None:
    text = finished([str(SURVIVING), "--ranks=3", "--steps=20", "--every=4", "--pause=0", "--kill=0", "--kill-at=10"])
    assert "2 ranks continue after step 8" in text, text
    check_ends(text, {1: 0, 2: 1})


def test_surviving_training_continues_under_separate_agents() -> None:
    """Rank 0 is killed; with it ends its agent, which serves the store."""
    (port,) = free_ports(1)
    agents = [subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--nnodes=3", f"--node-rank={node}", "--nproc-per-node=1",
         "--master-addr=127.0.0.1", f"--master-port={port}", str(SURVIVING),
         "--steps=20", "--pause=0", "--kill=0"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) for node in range(3)]  # fmt: skip
    try:
        outputs = [agent.communicate(timeout=DEADLINE_SECONDS)[0] for agent in agents]
    finally:
        for agent in agents:
            agent.send_signal(signal.SIGTERM)  # which it hands on to its rank
            agent.wait()
    assert [agent.returncode for agent in agents] == [1, 0, 0], outputs
    check_ends("".join(outputs), {1: 0, 2: 1})


def check_ends(text: str, ranks: dict[int, int]) -> None:
    """These ranks have ended, under these new numbers and with the same parameters."""
    ends = re.findall(r"rank (\d+) ends as rank (\d+) of (\d+) at step 20: parameters (\w+)", text)
    assert {(int(old), int(new), int(size)) for old, new, size, _ in ends} == {
        (old, new, len(ranks)) for old, new in ranks.items()
    }, text
    assert len({parameters for *_, parameters in ends}) == 1, text
