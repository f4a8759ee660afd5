"""Tests of the rule that advises a backend for GPUs, and of doctor's line about them."""

import pytest

from tools.emulated_cuda import library
from weft.device.advice import backend_for
from weft.diagnosis import graphics_processors

NCCL = "cpu:weft,cuda:nccl"


@pytest.mark.parametrize(
    ("devices", "reach", "cores", "backend"),
    [(8, True, 64, NCCL), (8, False, 64, "weft"), (8, False, 15, NCCL), (1, True, 2, "weft"), (1, True, 1, NCCL)],
)
def test_rule(devices: int, reach: bool, cores: float, backend: str) -> None:
    assert backend_for(devices, reach, cores)[0] == backend


def test_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CUDA_DRIVER", str(library()))
    monkeypatch.setattr("weft.machine.usable_cores", lambda: 16.0)
    text = graphics_processors().text
    assert text.startswith("emulated device, emulated device (CUDA 13.2); backend 'weft': the GPUs do not reach")
    monkeypatch.setenv("WEFT_CUDA_DRIVER", "libnone.so.7")
    assert graphics_processors().text.startswith("there is no CUDA driver here: libnone.so.7")
