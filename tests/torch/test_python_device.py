"""Test of tensors of an accelerator that weft knows by torch alone."""

import pytest
import torch.utils.backend_registration
from device_ranks import run

from weft.torch.registration import _accepts_python_backends

DEADLINE_SECONDS = 90.0


@pytest.mark.skipif(
    not hasattr(torch.utils.backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this torch has no devices written in Python",
)
@pytest.mark.skipif(not _accepts_python_backends(), reason="before torch 2.14 a group has one backend")
@pytest.mark.parametrize("allocator", ["streams", "no-streams"])
def test_operations_and_futures(allocator: str) -> None:
    run("python_device.py", DEADLINE_SECONDS, allocator)
