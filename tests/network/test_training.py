"""Training between emulated hosts: the demo's script, as `weft hosts` starts it."""

import json
import sys
from pathlib import Path

from emulated_hosts import run_hosts

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "train_digits.py"


def test_the_demo_trains_on_four_hosts(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    command = [sys.executable, str(SCRIPT), "--backend", "weft", "--epochs", "5", "--out", str(record)]
    done = run_hosts("--hosts", "4", "--gbps", "1", "--share", str(tmp_path), command=command, deadline_s=240)
    assert done.returncode == 0, done.stderr
    losses = json.loads(record.read_text())["losses"]
    assert sum(losses[-5:]) < 0.6 * sum(losses[:5])
