"""Test of tensors of an accelerator that weft knows by torch alone."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch.utils.backend_registration

from weft.bench.launch import free_ports
from weft.torch.registration import _accepts_python_backends

RANKS = 3
DEADLINE_SECONDS = 90.0
SCRIPT = Path(__file__).with_name("python_device.py")


@pytest.mark.skipif(
    not hasattr(torch.utils.backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this torch has no devices written in Python",
)
@pytest.mark.skipif(not _accepts_python_backends(), reason="before torch 2.14 a group has one backend")
@pytest.mark.parametrize("allocator", ["streams", "no-streams"])
def test_operations_and_futures(allocator: str) -> None:
    meeting = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    command = [sys.executable, SCRIPT]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(RANKS), meeting, allocator],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
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
