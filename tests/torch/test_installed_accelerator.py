"""Test of the backend on the accelerator that torch has here, such as PyTorch's OpenReg."""

import pytest
import torch
from device_ranks import run

from weft.torch.registration import _accepts_python_backends

DEADLINE_SECONDS = 300.0


@pytest.mark.skipif(
    not torch.accelerator.is_available(),
    reason="torch has no accelerator here: docs/how-to/cuda.md says how to build OpenReg, a simulated one",
)
@pytest.mark.skipif(not _accepts_python_backends(), reason="before torch 2.14 a group has one backend")
def test_operations_and_training() -> None:
    run("installed_accelerator.py", DEADLINE_SECONDS)
