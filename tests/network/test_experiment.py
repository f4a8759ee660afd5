"""Test of `weft experiment overlap` on emulated hosts: a small network by all contenders."""

import json
import subprocess
import sys
from pathlib import Path

from weft.experiment.study import CONTENDERS


def command(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    words = ["experiment", "overlap", "--model", "lenet", "--batch", "8", "--rounds", "1", "--steps", "1", *options]
    return subprocess.run(
        [sys.executable, "-m", "weft.cli", *words, "--json", "--out", str(directory)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_every_contender_trains_and_nothing_is_measured_twice(tmp_path: Path) -> None:
    done = command(tmp_path, "--hosts", "2", "--ratio", "1")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    assert found["parameters"] == 61_706
    assert set(found["step_ms"]) == set(CONTENDERS)
    assert all(step > 0 for step in found["step_ms"].values())
    assert found["bound_ms"] > 0
    assert "buckets" in found["report"]
    (kept,) = tmp_path.glob("*.json")
    assert (tmp_path / "overlap.png").exists()
    before = kept.read_text()
    again = command(tmp_path, "--hosts", "2", "--ratio", "1")
    assert again.returncode == 0, again.stderr
    assert kept.read_text() == before
