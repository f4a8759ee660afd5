"""Tests of installation into empty environments of every Python of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from distributions import (
    BUILD_S,
    FULL,
    ROOT,
    SMOKE,
    UV,
    environment,
    interpreters,
    laboratory_wheel,
    run,
    sdist,
    wheel,
)

INTERPRETERS = interpreters()
OURS = next(iter(INTERPRETERS))
EMULATED = ROOT / "build" / "aarch64" / "root"


@pytest.mark.parametrize("version", INTERPRETERS)
def test_without_torch(version: str, tmp_path: Path) -> None:
    programs = environment(tmp_path / "env", INTERPRETERS[version], wheel())
    assert run(programs / "python", SMOKE, cwd=tmp_path).count(" of 2 on ") == 2
    assert "usage: weft" in run(programs / "weft", "--help")
    run(programs / "weft", "doctor", cwd=tmp_path)


@pytest.mark.parametrize("version", INTERPRETERS if FULL else [OURS])
def test_with_torch(version: str, tmp_path: Path) -> None:
    """The first training job, and the demo."""
    programs = environment(
        tmp_path / "env", INTERPRETERS[version], wheel(), f"weft-lab[demo] @ file://{laboratory_wheel()}"
    )
    train = ROOT / "examples" / "launchers" / "train.py"
    output = run(programs / "torchrun", "--standalone", "--nproc-per-node", "2", train, cwd=tmp_path)
    assert "trained on 2 ranks of 1 hosts over weft" in output
    run(programs / "weft", "demo", "--ranks", "2", "--epochs", "4", cwd=tmp_path)
    assert {path.name for path in (tmp_path / "weft-demo").iterdir()} == {"weft.json", "gloo.json", "demo.png"}


@pytest.mark.skipif(not FULL, reason="the sdist is built with FULL=1: minutes")
def test_the_sdist_builds_with_pip_alone(tmp_path: Path) -> None:
    run(INTERPRETERS[OURS], "-m", "venv", tmp_path / "env")
    programs = tmp_path / "env" / "bin"
    run(programs / "python", "-m", "pip", "install", "--quiet", sdist(), deadline_s=BUILD_S, cwd=tmp_path)
    assert run(programs / "python", SMOKE, cwd=tmp_path).count(" of 2 on ") == 2


def test_the_wheel_for_aarch64_runs_under_an_emulator(tmp_path: Path) -> None:
    interpreter = (EMULATED / "usr" / "bin" / "python3").resolve()
    site = tmp_path / "site"
    target = [
        "--python-platform",
        "aarch64-manylinux_2_28",
        "--python-version",
        interpreter.name.removeprefix("python"),
    ]
    run(UV, "pip", "install", "--quiet", *target, "--target", site, wheel("aarch64"))
    emulator = f"qemu-aarch64 -cpu max -L {EMULATED}"
    output = run(*emulator.split(), interpreter, SMOKE, EMULATOR=emulator, PYTHONPATH=str(site))
    assert output.count(" of 2 on aarch64") == 2, output
