"""Tests of the rule for tensors of GPUs, and of the advice of `weft doctor` and `weft plan`."""

import json
from pathlib import Path

import pytest

from tools.emulated_cuda import library
from weft.cli import main
from weft.device import placement
from weft.device.advice import backend_for, ways, without_cuda
from weft.diagnosis.findings import graphics_processors

NCCL = "cpu:weft,cuda:nccl"


@pytest.mark.parametrize(
    ("devices", "reach", "cores", "backend"),
    [(8, True, 64, NCCL), (8, False, 64, "weft"), (8, False, 15, NCCL), (1, True, 2, "weft"), (1, True, 1, NCCL)],
)
def test_rule(devices: int, reach: bool, cores: float, backend: str) -> None:
    assert backend_for(devices, reach, cores)[0] == backend


@pytest.mark.parametrize(
    ("torch", "backend"), [("2.11.0", "nccl"), ("2.13.1+cu130", "nccl"), ("2.14.0", NCCL), ("2.15.0a0+git1", NCCL)]
)
def test_the_installed_torch_takes_the_backend(torch: str, backend: str) -> None:
    assert backend_for(8, True, 64, torch)[0] == backend
    assert backend_for(8, False, 64, torch)[0] == "weft"
    assert not without_cuda(torch)


def test_a_torch_without_cuda_is_named() -> None:
    assert "torch 2.15.0+cpu, which is installed, is a build for CPUs" in without_cuda("2.15.0+cpu")
    assert not without_cuda(None)


def test_one_gpu_for_several_processes() -> None:
    backend, why = backend_for(1, True, 2)
    assert backend == "weft"
    assert "NCCL shares between processes only from 2.30 on, with NCCL_MULTI_RANK_GPU_ENABLE=1" in why


def test_the_first_way_that_suits_is_taken() -> None:
    for devices in (1, 2, 8):
        for together in (False, True):
            for cores in (1, 4, 64):
                known = ways(devices, together, cores, "none")
                suiting = [way.backend for way in known if way.suits]
                assert backend_for(devices, together, cores)[0] == [*suiting, NCCL][0]
                assert all(way.why for way in known)


def test_doctor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WEFT_CUDA_DRIVER", str(library()))
    monkeypatch.setattr("weft.machine.usable_cores", lambda: 16.0)
    monkeypatch.setattr(placement, "_PCI_DEVICES", tmp_path)
    for address, node in (("0000:3b:00.0", "1"), ("0000:5e:00.0", "-1")):
        (tmp_path / address).mkdir()
        (tmp_path / address / "numa_node").write_text(f"{node}\n")
    text = graphics_processors().text
    assert text.startswith(
        "emulated device at NUMA node 1, emulated device (CUDA 13.2); backend 'weft': the GPUs do not reach"
    )
    monkeypatch.setenv("WEFT_CUDA_DRIVER", "libnone.so.7")
    assert graphics_processors().text.startswith("not available, not needed: no CUDA driver is installed: libnone.so.7")


def test_plan(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WEFT_CUDA_DRIVER", str(library()))
    monkeypatch.setattr("weft.cli.plan.usable_cores", lambda: 16.0)
    assert main(["plan", "--explain", "--gpu"]) == 0
    text = capsys.readouterr().out
    assert "2 GPUs, 16 cores: backend 'weft', as the GPUs do not reach" in text
    assert "by way of the host, an all-reduce of 64K by 4 ranks takes" in text
    found = []
    for copy_gbs, hosts in (("1", "1"), ("1000", "1"), ("1", "4")):
        machine = ["--size", "64M", "--copy-gbs", copy_gbs, "--hosts", hosts, "--gbps", "1"]
        assert main(["plan", "--explain", "--gpu", "--json", *machine]) == 0
        found.append(advice := json.loads(capsys.readouterr().out))
        assert (advice["backend"], [way["suits"] for way in advice["ways"]]) == ("weft", [False, True, False])
        assert advice["by_host_s"] > max(advice["reduced_s"], advice["bytes"] / float(copy_gbs) / 1e9)
    slow, fast, lines = found
    assert fast["by_host_s"] < slow["by_host_s"] < lines["by_host_s"]
    assert main(["plan", "ring", "--gpu"]) == 2
    assert "--gpu is for --explain" in capsys.readouterr().err
    monkeypatch.setenv("WEFT_CUDA_DRIVER", "libnone.so.7")
    assert main(["plan", "--explain", "--gpu"]) == 2
    assert "no CUDA driver is installed" in capsys.readouterr().err
