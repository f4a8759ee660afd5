"""Test of an elastic restart by torchrun after the death of a rank."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("elastic_training.py")
DEADLINE_SECONDS = 180.0


def test_elastic_restart(tmp_path: Path) -> None:
    text = torchrun(["--max-restarts=1", str(SCRIPT), str(tmp_path / "checkpoint")])
    assert "complete after 1 restarts, from step 4, 2 ranks" in text, text


def torchrun(arguments: list[str]) -> str:
    """Returns the output of two ranks; everything that was started has ended."""
    return finished(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *arguments])


def finished(arguments: list[str]) -> str:
    """Returns the output of a Python program and its processes; all of them have ended."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        text, _ = process.communicate(timeout=DEADLINE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
        raise AssertionError(f"not complete after {DEADLINE_SECONDS} s:\n{text}") from None
    assert process.returncode == 0, text
    return text
