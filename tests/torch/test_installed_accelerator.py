"""Test of the backend on whatever accelerator torch has here, such as PyTorch's OpenReg."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from weft.bench.launch import free_ports
from weft.torch.registration import _accepts_python_backends

RANKS = 3
DEADLINE_SECONDS = 300.0
SCRIPT = Path(__file__).with_name("installed_accelerator.py")


@pytest.mark.skipif(
    not torch.accelerator.is_available(),
    reason="torch has no accelerator here: docs/how-to/cuda.md says how to build OpenReg, a simulated one",
)
@pytest.mark.skipif(not _accepts_python_backends(), reason="before torch 2.14 a group has one backend")
def test_operations_and_training() -> None:
    meeting = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    command = [sys.executable, SCRIPT]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(RANKS), meeting], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for rank in range(RANKS)
    ]
    try:
        for rank in ranks:
            told, _ = rank.communicate(timeout=DEADLINE_SECONDS)
            assert rank.returncode == 0 and told.endswith("passed\n"), told
    finally:
        for rank in ranks:
            rank.kill()
